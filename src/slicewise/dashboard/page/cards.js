// A row of the grid: the node's name and state, then its cards, filled by pod.

import { podColour } from "./colours.js";
import { make } from "./dom.js";
import { podPicked } from "./search.js";
import { CORDONED, ILL, MIG, NOT_READY, SILENT, UNSCHEDULABLE } from "./store.js";
import { gib, modelName, percent, plural } from "./words.js";

const NAMED_IN_LABEL = 4;

export function nodeState(node) {
  const words = [];
  if (node.flags & NOT_READY) words.push("not ready");
  if (node.flags & SILENT) words.push("agent silent");
  if (node.flags & UNSCHEDULABLE) words.push("closed");
  const ill = node.cards.filter((card) => card.flags & ILL).length;
  if (ill) words.push(`${ill} unhealthy`);
  return words;
}

export function cardState(card) {
  if (card.flags & ILL) return "unhealthy";
  if (card.flags & CORDONED) return "cordoned";
  if (card.flags & MIG) return "split by MIG";
  if (card.cores > 100 || card.held > card.memory) return "over-full";
  return "";
}

export function describeModels(cards) {
  const counts = new Map();
  for (const card of cards) counts.set(card.model, (counts.get(card.model) || 0) + 1);
  return [...counts].map(([model, count]) => `${count} × ${modelName(model)}`).join(", ");
}

function describeCard(card) {
  const words = [`gpu ${card.index} of ${card.node}`, modelName(card.model)];
  const state = cardState(card);
  if (state) words.push(state);
  words.push(`${card.cores} percent of compute and ${gib(card.held)} of ${gib(card.memory)} GiB promised`);
  if (card.use) words.push(`${card.use.cores ?? "unknown"} percent in use`);
  const pods = [...new Set(card.parts.map((part) => part.pod.key))];
  if (!pods.length) words.push("free");
  else {
    const more = pods.length > NAMED_IN_LABEL ? ` and ${pods.length - NAMED_IN_LABEL} more` : "";
    words.push(`held by ${pods.slice(0, NAMED_IN_LABEL).join(", ")}${more}`);
  }
  return words.join(", ");
}

function bar(kind, card, amount, whole, picked) {
  const track = make("span", { class: `bar ${kind}` });
  let from = 0;
  for (const part of card.parts) {
    const width = Math.min(100 - from, (100 * part[amount]) / whole);
    if (width <= 0) continue;
    const piece = make("i", { class: "piece", data: { pod: part.pod.key }, title: `${part.pod.key}: ${part.cores}% · ${gib(part.memory)} GiB` });
    piece.style.left = `${from}%`;
    piece.style.width = `${width}%`;
    piece.style.backgroundColor = podColour(part.pod.key);
    if (part.pod.doubt) piece.classList.add("unsure");
    if (picked.length && !podPicked(part.pod, picked)) piece.classList.add("other");
    track.append(piece);
    from += width;
  }
  return track;
}

function useLine(share) {
  const line = make("span", { class: "used" });
  const mark = make("i");
  mark.style.width = `${Math.max(0, Math.min(100, share))}%`;
  line.append(mark);
  return line;
}

function drawCard(card, picked) {
  const state = cardState(card);
  const cell = make("div", {
    class: "card", role: "gridcell", tabindex: "-1", "aria-label": describeCard(card),
    "aria-colindex": card.at + 2, data: { node: card.node, at: card.at },
  });
  if (state) cell.classList.add(card.flags ? "unusable" : "full");
  const free = !card.parts.length && !state;
  const held = percent(card.held, card.memory);
  const amounts = card.cores === 100 && held === 100 ? "full" : `${card.cores} · ${held}%`;
  cell.append(
    make("span", { class: "top" }, make("b", {}, String(card.index)), make("span", {}, state || (free ? "free" : amounts))),
    bar("compute", card, "cores", 100, picked),
  );
  if (card.use && card.use.cores !== null) cell.append(useLine(card.use.cores));
  cell.append(bar("memory", card, "memory", card.memory, picked));
  if (card.use && card.use.memory !== null) cell.append(useLine(percent(card.use.memory, card.memory)));
  return cell;
}

export function drawRow(node, index, picked) {
  const states = nodeState(node);
  const bad = Boolean(node.flags & (NOT_READY | SILENT));
  const row = make("div", { class: "row", role: "row", "aria-rowindex": index + 1, data: { node: node.name } });
  if (bad) row.classList.add("bad");
  const words = states.join(", ") || "ready";
  const kinds = describeModels(node.cards);
  const head = make("div", {
    class: "head", role: "rowheader", tabindex: "-1", "aria-colindex": 1, data: { node: node.name, at: -1 },
    "aria-label": `node ${node.name}, ${kinds}, ${words}, ${plural(node.pods.length, "pod")}`, title: `${node.name}: ${kinds}`,
  });
  head.append(make("b", {}, node.name), make("span", { class: "kind" }, kinds));
  head.append(make("span", { class: states.length ? "badge" : "well" }, states.length ? words : `${words} · ${plural(node.pods.length, "pod")}`));
  row.append(head, make("div", { class: "cards", role: "presentation" }, node.cards.map((card) => drawCard(card, picked))));
  return row;
}

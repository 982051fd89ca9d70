// A row of the grid: the node's name and state, then its GPUs, filled by pod.

import { podColour } from "./colours.js";
import { make } from "./dom.js";
import { podPicked } from "./search.js";
import { CORDONED, UNHEALTHY, MIG, NOT_READY, SILENT, UNSCHEDULABLE } from "./store.js";
import { gib, modelName, percent, plural } from "./words.js";

const NAMED_IN_LABEL = 4;

export function nodeState(node) {
  const words = [];
  if (node.flags & NOT_READY) words.push("not ready");
  if (node.flags & SILENT) words.push("agent silent");
  if (node.flags & UNSCHEDULABLE) words.push("closed");
  const unhealthy = node.gpus.filter((gpu) => gpu.flags & UNHEALTHY).length;
  if (unhealthy) words.push(`${unhealthy} unhealthy`);
  return words;
}

export function gpuState(gpu) {
  if (gpu.flags & UNHEALTHY) return "unhealthy";
  if (gpu.flags & CORDONED) return "cordoned";
  if (gpu.flags & MIG) return "split by MIG";
  if (gpu.cores > 100 || gpu.held > gpu.memory) return "over-full";
  return "";
}

export function describeModels(gpus) {
  const counts = new Map();
  for (const gpu of gpus) counts.set(gpu.model, (counts.get(gpu.model) || 0) + 1);
  return [...counts].map(([model, count]) => `${count} × ${modelName(model)}`).join(", ");
}

function describeGpu(gpu) {
  const words = [`gpu ${gpu.index} of ${gpu.node}`, modelName(gpu.model)];
  const state = gpuState(gpu);
  if (state) words.push(state);
  words.push(`${gpu.cores} percent of compute and ${gib(gpu.held)} of ${gib(gpu.memory)} GiB allocated`);
  if (gpu.use) words.push(`${gpu.use.cores ?? "unknown"} percent in use`);
  const pods = [...new Set(gpu.parts.map((part) => part.pod.key))];
  if (!pods.length) words.push("free");
  else {
    const more = pods.length > NAMED_IN_LABEL ? ` and ${pods.length - NAMED_IN_LABEL} more` : "";
    words.push(`held by ${pods.slice(0, NAMED_IN_LABEL).join(", ")}${more}`);
  }
  return words.join(", ");
}

function bar(kind, gpu, amount, whole, picked) {
  const track = make("span", { class: `bar ${kind}` });
  let from = 0;
  for (const part of gpu.parts) {
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

function drawGpu(gpu, picked) {
  const state = gpuState(gpu);
  const cell = make("div", {
    class: "gpu", role: "gridcell", tabindex: "-1", "aria-label": describeGpu(gpu),
    "aria-colindex": gpu.at + 2, data: { node: gpu.node, at: gpu.at },
  });
  if (state) cell.classList.add(gpu.flags ? "unusable" : "full");
  const free = !gpu.parts.length && !state;
  const held = percent(gpu.held, gpu.memory);
  const amounts = gpu.cores === 100 && held === 100 ? "full" : `${gpu.cores} · ${held}%`;
  cell.append(
    make("span", { class: "top" }, make("b", {}, String(gpu.index)), make("span", {}, state || (free ? "free" : amounts))),
    bar("compute", gpu, "cores", 100, picked),
  );
  if (gpu.use && gpu.use.cores !== null) cell.append(useLine(gpu.use.cores));
  cell.append(bar("memory", gpu, "memory", gpu.memory, picked));
  if (gpu.use && gpu.use.memory !== null) cell.append(useLine(percent(gpu.use.memory, gpu.memory)));
  return cell;
}

export function drawRow(node, index, picked) {
  const states = nodeState(node);
  const bad = Boolean(node.flags & (NOT_READY | SILENT));
  const row = make("div", { class: "row", role: "row", "aria-rowindex": index + 1, data: { node: node.name } });
  if (bad) row.classList.add("bad");
  const words = states.join(", ") || "ready";
  const kinds = describeModels(node.gpus);
  const head = make("div", {
    class: "head", role: "rowheader", tabindex: "-1", "aria-colindex": 1, data: { node: node.name, at: -1 },
    "aria-label": `node ${node.name}, ${kinds}, ${words}, ${plural(node.pods.length, "pod")}`, title: `${node.name}: ${kinds}`,
  });
  head.append(make("b", {}, node.name), make("span", { class: "kind" }, kinds));
  head.append(make("span", { class: states.length ? "badge" : "ready" }, states.length ? words : `${words} · ${plural(node.pods.length, "pod")}`));
  row.append(head, make("div", { class: "gpus", role: "presentation" }, node.gpus.map((gpu) => drawGpu(gpu, picked))));
  return row;
}

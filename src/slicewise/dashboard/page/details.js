// What is known of one node, GPU or waiting pod, for whoever opened it.

import { gpuState, describeModels, nodeState } from "./gpus.js";
import { podColour } from "./colours.js";
import { make } from "./dom.js";
import { gib, modelName, percent, plural } from "./words.js";

const NODES = 12;
const WHOLE = 100;

function heading(title, onClose) {
  return make("h2", { tabindex: "-1" }, make("span", {}, title), make("button", { type: "button", class: "close", "aria-label": "Close the details (Escape)", on: { click: onClose } }, "close"));
}

function swatch(pod) {
  const mark = make("i", { class: "swatch", "aria-hidden": "true" });
  mark.style.backgroundColor = podColour(pod);
  return mark;
}

function facts(pairs) {
  return make("dl", { class: "facts" }, pairs.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]));
}

// What is held, after what of it is in use where that is known.
function amount(used, held) {
  return used === null || used === undefined ? held : `${used} / ${held}`;
}

function podTable(parts, { onPod, use }) {
  const head = make("thead", {}, make("tr", {}, ["pod", "gpu", "compute", "GiB", "isolation"].map((name) => make("th", { scope: "col" }, name))));
  const measured = parts.some((part) => part.use);
  const note = use === "measured" ? "in use / held" : `in use (${use}) / held`;
  const body = make("tbody", {}, parts.map((part) => make("tr", {},
    make("td", {}, make("button", { type: "button", class: "link", title: "Show only this pod", on: { click: () => onPod(part.pod.key) } }, swatch(part.pod.key), part.pod.key),
      part.pod.doubt ? make("span", { class: "badge" }, part.pod.doubt) : null),
    make("td", {}, String(part.gpu.index)),
    make("td", {}, amount(part.use?.cores, part.cores ? `${part.cores}%` : "–")),
    make("td", {}, amount(part.use && part.use.memory !== null ? gib(part.use.memory) : null, gib(part.memory))),
    make("td", {}, part.cores === WHOLE ? "whole" : part.pod.isolation))));
  return make("table", {}, measured ? make("caption", {}, note) : null, head, body);
}

export function drawNode(node, actions) {
  const parts = node.gpus.flatMap((gpu) => gpu.parts);
  return [
    heading(`Node ${node.name}`, actions.onClose),
    facts([
      ["state", nodeState(node).join(", ") || "ready"],
      ["GPUs", describeModels(node.gpus)],
      ...(node.pool ? [["pool", node.pool]] : []),
      ["pods", String(node.pods.length)],
    ]),
    parts.length ? podTable(parts, actions) : make("p", { class: "none" }, "No pod holds a part of its GPUs."),
  ];
}

export function drawGpu(gpu, actions) {
  const rows = [
    ["model", modelName(gpu.model)],
    ["state", gpuState(gpu) || "healthy"],
    ["compute", `${gpu.cores} of 100 percent allocated`],
    ["isolation", gpu.isolation],
    ["memory", `${gib(gpu.held)} of ${gib(gpu.memory)} GiB allocated (${percent(gpu.held, gpu.memory)}%)`],
  ];
  if (gpu.use) {
    const memory = gpu.use.memory === null ? "" : ` and ${gib(gpu.use.memory)} GiB`;
    rows.push([actions.use === "measured" ? "in use" : `in use (${actions.use})`, `${gpu.use.cores ?? "unknown"} percent${memory}`]);
  }
  return [
    heading(`${gpu.node} · gpu ${gpu.index}`, actions.onClose),
    facts(rows),
    gpu.parts.length ? podTable(gpu.parts, actions) : make("p", { class: "none" }, "No pod holds a part of this GPU."),
  ];
}

export function drawPod(answer, actions) {
  const children = [heading(`Why ${answer.pod} waits`, actions.onClose), make("p", { class: "why" }, answer.summary)];
  const rows = [["asks for", answer.asks || "no GPU"]];
  if (answer.node) rows.push(["is on", answer.node]);
  if (answer.best) rows.push(["best now", `${answer.best.node}: ${answer.best.allocation.join("; ")}`]);
  if (answer.smallestChange) rows.push(["would fit", `${answer.smallestChange.change} (node ${answer.smallestChange.node})`]);
  children.push(facts(rows));
  const refusing = answer.nodes.filter((node) => !node.fits && (node.phrase || node.reason));
  children.push(make("ul", { class: "nodes" }, refusing.slice(0, NODES).map((node) => make("li", {},
    make("b", {}, node.node), make("span", { class: "badge" }, node.phrase || node.reason), make("span", { class: "why" }, node.detail || "")))));
  if (refusing.length > NODES) children.push(make("p", { class: "none" }, `and ${plural(refusing.length - NODES, "node")} more`));
  return children;
}

export function drawMessage(title, text, actions) {
  return [heading(title, actions.onClose), make("p", { class: "why" }, text)];
}

// What stands beside the GPUs: totals, waiting pods, quota and troubles.

import { find, make } from "./dom.js";
import { ago, gib, modelName, percent, plural } from "./words.js";

const MOST = 100;

export function drawTotals(box, totals) {
  const facts = [
    ["nodes", totals.silent ? `${totals.nodes.toLocaleString("en")} (${totals.silent} not ready)` : totals.nodes.toLocaleString("en"), totals.silent],
    ["GPUs", totals.unhealthy ? `${totals.gpus.toLocaleString("en")} (${totals.unhealthy} unhealthy)` : totals.gpus.toLocaleString("en"), totals.unhealthy],
    ["free GPUs", totals.whole.toLocaleString("en")],
    ["pods", totals.pods.toLocaleString("en")],
    ["compute", `${percent(totals.cores_held, totals.cores)}%`],
    ["memory", `${percent(totals.memory_held, totals.memory)}%`],
    ["fragmented", `${Math.round(totals.fragmented)}%`],
    ["waiting", totals.waiting.toLocaleString("en"), totals.waiting],
  ];
  box.replaceChildren(...facts.map(([name, text, alarm]) =>
    make("div", alarm ? { class: "alarm" } : {}, make("dt", {}, name), make("dd", {}, text))));
  const [held, memory] = [totals.cores_held / 100, totals.memory_held];
  box.title = `${held.toFixed(1)} of ${totals.cores / 100} GPUs' compute and ${gib(memory)} of ${gib(totals.memory)} GiB are allocated. `
    + "Fragmented: the part of the free compute that is on GPUs partly taken.";
}

export function drawWaiting(section, rows, { onOpen, now }) {
  const sorted = [...rows].sort((one, other) => one[4] - other[4] || (one[0] < other[0] ? -1 : 1));
  find("h2 b", section).textContent = rows.length ? rows.length.toLocaleString("en") : "";
  const items = sorted.slice(0, MOST).map((row) => {
    const [, namespace, name, asks, since, fits, total, reasons] = row;
    const pod = `${namespace}/${name}`;
    const main = fits
      ? `${plural(fits, "node")} of ${total} can take it: its scheduler has not yet`
      : reasons.slice(0, 3).map(([phrase, count]) => (total === 1 ? phrase : `${count.toLocaleString("en")}: ${phrase}`)).join(" · ");
    return make("li", {}, make("button", { type: "button", data: { pod }, on: { click: () => onOpen(pod) } },
      make("span", { class: "line" }, make("b", {}, pod), make("time", {}, ago(now - since))),
      make("span", { class: "why" }, main), make("span", { class: "asks" }, asks || "its request cannot be read")));
  });
  if (!items.length) items.push(make("li", { class: "none" }, "No pod waits for a GPU."));
  if (rows.length > MOST) items.push(make("li", { class: "none" }, `and ${(rows.length - MOST).toLocaleString("en")} more`));
  // A button that has the keyboard keeps it, though it is made again.
  const focused = section.contains(document.activeElement) ? document.activeElement.dataset.pod : null;
  const list = find("ul", section);
  list.replaceChildren(...items);
  if (focused) list.querySelector(`[data-pod="${CSS.escape(focused)}"]`)?.focus();
}

export function drawQuota(section, rows) {
  const sorted = [...rows].sort((one, other) => (one[3] === null) - (other[3] === null) || one[0].localeCompare(other[0]) || one[1].localeCompare(other[1]));
  find("h2 b", section).textContent = "";
  const head = make("thead", {}, make("tr", {}, ["namespace", "model", "GPUs", "of quota"].map((name) => make("th", { scope: "col" }, name))));
  const body = make("tbody", {}, sorted.slice(0, MOST).map(([namespace, model, held, allowed]) => {
    const share = allowed ? held / allowed : 100;
    const over = allowed !== null && held > 100 * allowed;
    const row = make("tr", over ? { class: "alarm" } : {}, make("td", { title: namespace }, namespace), make("td", { title: model }, modelName(model)), make("td", {}, (held / 100).toFixed(held % 100 ? 2 : 0)));
    if (allowed === null) row.append(make("td", { class: "none" }, "no limit"));
    else {
      const meter = make("span", { class: "meter" }, make("i"));
      meter.firstChild.style.width = `${Math.min(100, share)}%`;
      row.append(make("td", {}, meter, `${allowed}${over ? " over" : ""}`));
    }
    return row;
  }));
  const nothing = make("caption", { class: "none" }, "Nothing is held, and no quota is set.");
  const table = find("table", section);
  table.replaceChildren(...(sorted.length ? [head, body] : [nothing]));
}

export function drawTroubles(section, rows) {
  section.hidden = !rows.length;
  find("h2 b", section).textContent = rows.length.toLocaleString("en");
  find("ul", section).replaceChildren(...rows.slice(0, MOST).map(([subject, trouble, detail]) =>
    make("li", {}, make("b", {}, subject), make("span", { class: "badge" }, trouble), make("span", { class: "why" }, detail))));
}

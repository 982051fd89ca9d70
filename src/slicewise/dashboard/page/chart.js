// Allocation and fragmentation over time, as lines that differ in more than colour.

import { draw, make } from "./dom.js";
import { clock } from "./words.js";

const WIDTH = 348;
const HEIGHT = 118;
const LEFT = 30;
const BOTTOM = 16;
const LINES = [
  { at: 1, name: "compute allocated", kind: "compute" },
  { at: 2, name: "memory allocated", kind: "memory" },
  { at: 3, name: "free but fragmented", kind: "fragmented" },
  { at: 5, name: "compute in use", kind: "use" },
];

export function drawChart(box, points, use) {
  if (!points.length) return;
  const first = points[0][0];
  const last = Math.max(points[points.length - 1][0], first + 1000);
  const x = (time) => LEFT + ((WIDTH - LEFT - 2) * (time - first)) / (last - first);
  const y = (value) => 4 + (HEIGHT - BOTTOM - 4) * (1 - Math.min(100, value) / 100);
  const now = points[points.length - 1];
  const lines = LINES.filter((line) => now[line.at] !== null && now[line.at] !== undefined);
  const words = lines.map((line) => `${line.name} ${Math.round(now[line.at])} percent`).join(", ");
  const picture = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `Since ${clock(first)}; now ${words}` });
  for (const value of [0, 50, 100]) {
    picture.append(
      draw("line", { class: "rule", x1: LEFT, x2: WIDTH, y1: y(value), y2: y(value) }),
      draw("text", { class: "mark", x: LEFT - 4, y: y(value) + 3.5, "text-anchor": "end" }, `${value}%`),
    );
  }
  for (const line of lines) {
    const way = points.filter((point) => point[line.at] !== null)
      .map((point, at) => `${at ? "L" : "M"}${x(point[0]).toFixed(1)} ${y(point[line.at]).toFixed(1)}`).join("");
    picture.append(draw("path", { class: `line ${line.kind}`, d: way }));
  }
  picture.append(
    draw("text", { class: "mark", x: LEFT, y: HEIGHT - 3 }, clock(first)),
    draw("text", { class: "mark", x: WIDTH, y: HEIGHT - 3, "text-anchor": "end" }, clock(points[points.length - 1][0])),
  );
  const legend = make("ul", { class: "lines" }, lines.map((line) => make("li", {},
    draw("svg", { viewBox: "0 0 26 8", "aria-hidden": "true" }, draw("path", { class: `line ${line.kind}`, d: "M1 4L25 4" })),
    make("span", {}, line.kind === "use" && use ? `${line.name} (${use})` : line.name),
    make("b", {}, `${Math.round(now[line.at])}%`))));
  box.replaceChildren(picture, legend);
}

// The rows of all nodes, of which only those in sight exist; one cell at a time takes the keyboard.

import { drawRow } from "./gpus.js";
import { make } from "./dom.js";

const SPARE = 4;
const LINE = 64;
const EDGE = 5;

export class Grid {
  constructor(box, rows, { store, onOpen }) {
    this.box = box;
    this.rows = rows;
    this.store = store;
    this.onOpen = onOpen;
    this.names = [];
    this.picked = [];
    this.tops = [0];
    this.perLine = 8;
    this.drawn = new Map();
    this.at = { row: 0, column: -1 };
    this.chosen = null;
    box.addEventListener("scroll", () => this.later(), { passive: true });
    box.addEventListener("keydown", (event) => this.press(event));
    box.addEventListener("click", (event) => this.click(event));
    box.addEventListener("focusin", (event) => this.follow(event));
    new ResizeObserver(() => this.resize()).observe(box);
  }

  // Show these nodes, in this order.
  show(names, picked) {
    const focused = this.names[this.at.row];
    this.names = names;
    this.picked = picked;
    const found = focused === undefined ? -1 : names.indexOf(focused);
    this.at.row = found >= 0 ? found : Math.min(this.at.row, Math.max(0, names.length - 1));
    this.measure();
    for (const row of this.drawn.values()) row.remove();
    this.drawn.clear();
    this.draw();
  }

  // Draw these nodes again if they are in sight.
  renew(nodes) {
    let again = false;
    for (const name of nodes) {
      const row = this.drawn.get(name);
      if (!row) continue;
      this.drawn.delete(name);
      again = true;
      this.stale = (this.stale || []).concat(row);
    }
    if (again) this.draw();
  }

  resize() {
    const width = this.box.clientWidth;
    this.perLine = width >= 760 ? 8 : 4;
    this.rows.style.setProperty("--columns", this.perLine);
    this.measure();
    this.draw();
  }

  // Where each row begins; nodes with more GPUs than a line has take more lines.
  measure() {
    const tops = new Array(this.names.length + 1);
    tops[0] = 0;
    for (let at = 0; at < this.names.length; at++) {
      const gpus = this.store.nodes.get(this.names[at])?.[3].length || 1;
      tops[at + 1] = tops[at] + EDGE + LINE * Math.ceil(gpus / this.perLine);
    }
    this.tops = tops;
    this.rows.style.height = `${tops[this.names.length]}px`;
    this.box.setAttribute("aria-rowcount", this.names.length);
  }

  rowAt(pixel) {
    let low = 0;
    let high = Math.max(0, this.names.length - 1);
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.tops[middle] <= pixel) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  later() {
    this.waiting ??= requestAnimationFrame(() => {
      this.waiting = null;
      this.draw();
    });
  }

  draw() {
    const top = this.box.scrollTop;
    const first = Math.max(0, this.rowAt(top) - SPARE);
    const last = Math.min(this.names.length - 1, this.rowAt(top + this.box.clientHeight) + SPARE);
    const wanted = new Set();
    for (let at = first; at <= last; at++) wanted.add(this.names[at]);
    // The focused row stays, wherever it is, or the keyboard would lose its place.
    const held = this.box.contains(document.activeElement) ? this.at.row : -1;
    if (held >= 0 && held < this.names.length) wanted.add(this.names[held]);
    for (const [name, row] of this.drawn) {
      if (!wanted.has(name)) {
        row.remove();
        this.drawn.delete(name);
      }
    }
    const focus = this.box.contains(document.activeElement) && document.activeElement !== this.box;
    const order = [];
    if (held >= 0 && held < first) order.push(held);
    for (let at = first; at <= last; at++) order.push(at);
    if (held > last) order.push(held);
    // From the end, so that each row finds its successor; those in place are left alone.
    let next = null;
    for (const at of order.reverse()) next = this.put(at, next);
    for (const row of this.stale || []) row.remove();
    this.stale = null;
    this.mark(focus);
    this.choose(this.chosen);
  }

  // Mark the cell whose details are open; none of them without a place.
  choose(place) {
    this.chosen = place;
    this.rows.querySelectorAll(".chosen").forEach((cell) => cell.classList.remove("chosen"));
    const row = place && this.drawn.get(place.node);
    row?.querySelector(`[data-at="${place.column}"]`)?.classList.add("chosen");
  }

  // The row, drawn if it was not, before the one that follows it.
  put(at, next) {
    const name = this.names[at];
    let row = this.drawn.get(name);
    if (!row) {
      const node = this.store.node(name);
      if (!node) return next;
      row = drawRow(node, at, this.picked);
      this.drawn.set(name, row);
      this.rows.insertBefore(row, next);
    }
    row.style.transform = `translateY(${this.tops[at]}px)`;
    row.setAttribute("aria-rowindex", at + 1);
    return row;
  }

  // The one cell that Tab reaches.
  mark(focus) {
    this.rows.querySelector('[tabindex="0"]')?.setAttribute("tabindex", "-1");
    const cell = this.cell();
    if (!cell) return;
    cell.setAttribute("tabindex", "0");
    if (focus && document.activeElement !== cell) cell.focus({ preventScroll: true });
  }

  cell() {
    const row = this.drawn.get(this.names[this.at.row]);
    if (!row) return null;
    const cells = row.querySelectorAll("[data-at]");
    return cells[Math.min(this.at.column + 1, cells.length - 1)];
  }

  count() {
    return this.store.nodes.get(this.names[this.at.row])?.[3].length || 0;
  }

  go(row, column) {
    if (!this.names.length) return;
    this.at.row = Math.max(0, Math.min(this.names.length - 1, row));
    this.at.column = Math.max(-1, Math.min(this.count() - 1, column));
    const top = this.tops[this.at.row];
    const bottom = this.tops[this.at.row + 1];
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (bottom > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = bottom - this.box.clientHeight;
    this.draw();
    this.mark(true);
    this.cell()?.focus({ preventScroll: true });
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { row, column } = this.at;
    const page = Math.max(1, Math.floor(this.box.clientHeight / (LINE + EDGE)) - 1);
    const moves = {
      ArrowUp: [row - 1, column], ArrowDown: [row + 1, column],
      ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1],
      PageUp: [row - page, column], PageDown: [row + page, column],
      Home: [0, column], End: [this.names.length - 1, column],
    };
    if (moves[event.key]) this.go(...moves[event.key]);
    else if (event.key === "Enter" || event.key === " ") this.open();
    else return;
    event.preventDefault();
  }

  click(event) {
    const cell = event.target.closest("[data-at]");
    if (!cell) return;
    const row = this.names.indexOf(cell.dataset.node);
    this.go(row, Number(cell.dataset.at));
    this.open();
  }

  follow(event) {
    const cell = event.target.closest?.("[data-at]");
    if (!cell) return;
    this.at = { row: this.names.indexOf(cell.dataset.node), column: Number(cell.dataset.at) };
    this.mark(false);
  }

  open() {
    const name = this.names[this.at.row];
    if (name !== undefined) this.onOpen(name, this.at.column);
  }
}

export const emptyText = (total, text) =>
  make("span", {}, total ? `Nothing of ${total.toLocaleString("en")} nodes matches “${text}”.` : "No node of this cluster has a GPU that Slicewise knows.");

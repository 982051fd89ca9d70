// Joins the feed, the store and what is drawn; draws at most once a frame.

import { drawChart } from "./chart.js";
import { drawGpu, drawMessage, drawNode, drawPod } from "./details.js";
import { find } from "./dom.js";
import { Feed } from "./feed.js";
import { emptyText, Grid } from "./grid.js";
import { drawQuota, drawTotals, drawTroubles, drawWaiting } from "./panels.js";
import { nodeMatches, picksPods, readSearch } from "./search.js";
import { Store } from "./store.js";

const THEMES = ["system", "light", "dark"];
const TOKEN = "slicewise-token";
const THEME = "slicewise-theme";

const store = new Store();
const grid = new Grid(find("#grid"), find("#rows"), { store, onOpen: openCell });
const pending = { changed: new Set(), nodes: new Set(), all: false };
let frame = null;
let opened = null;
let feed = null;
let answered = 0;

function later() {
  frame ??= requestAnimationFrame(render);
}

function render() {
  frame = null;
  const { changed, nodes } = pending;
  const all = pending.all || store.sorted === null;
  pending.changed = new Set();
  pending.nodes = new Set();
  pending.all = false;
  const totals = store.totals1();
  if (all || changed.has("models")) showNodes();
  else if (nodes.size) renewNodes(nodes);
  if (changed.has("totals") && totals) drawTotals(find("#totals"), totals);
  if (changed.has("waiting")) showWaiting();
  if (changed.has("quota")) drawQuota(find("#quota"), [...store.quota.values()]);
  if (changed.has("troubles")) drawTroubles(find("#troubles"), [...store.troubles.values()]);
  if (changed.has("points")) showHistory();
  if (changed.has("about") || changed.has("usage")) showUse();
  if (opened && opened.node !== undefined && (all || nodes.has(opened.node))) showDetails(false);
}

function showNodes() {
  const text = find("#search").value;
  const words = readSearch(text);
  const names = words.length ? store.names().filter((name) => nodeMatches(store, store.nodes.get(name), words)) : store.names();
  grid.show(names, picksPods(words));
  const total = store.nodes.size;
  const count = (number) => number.toLocaleString("en");
  find("#count").textContent = words.length ? `${count(names.length)} of ${count(total)} nodes` : `${count(total)} nodes`;
  const empty = find("#empty");
  empty.hidden = names.length > 0 || store.totals1() === null;
  if (!empty.hidden) empty.replaceChildren(emptyText(total, text));
}

function renewNodes(nodes) {
  // A search by pod or state may now find other nodes.
  if (readSearch(find("#search").value).length) showNodes();
  else grid.renew(nodes);
}

function showWaiting() {
  drawWaiting(find("#waiting"), [...store.waiting.values()], { onOpen: openPod, now: Date.now() });
}

function showHistory() {
  const points = [...store.points.values()].sort((one, other) => one[0] - other[0]);
  drawChart(find("#history > div"), points, store.about1().use);
}

function showUse() {
  const use = store.about1().use;
  find("#use-legend").hidden = !use || !store.usage.size;
  if (use) find("#use-legend span").textContent = use === "measured" ? "in use" : `in use (${use})`;
}

function openCell(name, column) {
  opened = { node: name, column };
  grid.choose(opened);
  showDetails(true);
}

async function openPod(pod) {
  opened = { pod };
  grid.choose(null);
  const mine = ++answered;
  const headers = feed?.token ? { Authorization: `Bearer ${feed.token}` } : {};
  let children;
  try {
    const response = await fetch(`api/explain?pod=${encodeURIComponent(pod)}`, { headers, cache: "no-store" });
    children = response.ok ? drawPod(await response.json(), actions()) : drawMessage(pod, (await response.text()).trim(), actions());
  } catch {
    children = drawMessage(pod, "The server could not be asked.", actions());
  }
  if (mine === answered && opened?.pod === pod) fillDetails(children, true);
}

function actions() {
  return { onClose: closeDetails, onPod: searchPod, use: store.about1().use };
}

function showDetails(scroll) {
  const node = store.node(opened.node);
  if (!node) return closeDetails();
  const gpu = opened.column < 0 ? null : node.gpus[opened.column];
  fillDetails(gpu ? drawGpu(gpu, actions()) : drawNode(node, actions()), scroll);
}

function fillDetails(children, scroll) {
  const box = find("#details");
  box.replaceChildren(...children);
  box.hidden = false;
  if (scroll) find("#side").scrollTop = 0;
}

function closeDetails() {
  const last = opened;
  opened = null;
  grid.choose(null);
  find("#details").hidden = true;
  if (last?.pod) find(`#waiting [data-pod="${CSS.escape(last.pod)}"]`)?.focus();
  else grid.cell()?.focus({ preventScroll: true });
}

function searchPod(pod) {
  find("#search").value = `pod:${pod}`;
  showNodes();
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  find("#theme").textContent = `theme: ${theme}`;
  localStorage.setItem(THEME, theme);
}

function connect(token) {
  if (feed) feed.stopped = true;
  feed = new Feed({
    token,
    onMessage(message) {
      const { changed, nodes } = store.apply(message);
      changed.forEach((name) => pending.changed.add(name));
      nodes.forEach((name) => pending.nodes.add(name));
      pending.all ||= Boolean(message.reset);
      later();
    },
    onState(state, text) {
      const box = find("#state");
      if (box.dataset.state !== state || box.textContent !== text) {
        box.dataset.state = state;
        box.textContent = text;
      }
      if (state === "unknown" || state === "forbidden") askToken(state === "forbidden" ? text : "");
    },
  });
  feed.run();
}

function askToken(why) {
  sessionStorage.removeItem(TOKEN);
  const dialog = find("#ask");
  if (why) find("#ask-why").textContent = `This token is ${why}. Paste another.`;
  if (!dialog.open) dialog.showModal();
}

function listen() {
  const search = find("#search");
  search.addEventListener("input", () => {
    pending.all = true;
    later();
  });
  search.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") {
      event.preventDefault();
      grid.go(grid.at.row, grid.at.column);
    }
  });
  document.addEventListener("keydown", (event) => {
    const typing = event.target.matches?.("input");
    if (event.key === "/" && !typing) {
      event.preventDefault();
      search.focus();
      search.select();
    } else if (event.key === "Escape" && opened && !find("#ask").open) closeDetails();
  });
  find("#theme").addEventListener("click", () => {
    const at = THEMES.indexOf(document.documentElement.dataset.theme);
    setTheme(THEMES[(at + 1) % THEMES.length]);
  });
  find("#ask").addEventListener("close", () => {
    const token = find("#token").value.trim();
    find("#token").value = "";
    if (!token) return;
    sessionStorage.setItem(TOKEN, token);
    connect(token);
  });
  // How long pods have waited goes on while nothing else happens.
  setInterval(() => {
    if (store.waiting.size && !document.hidden) showWaiting();
  }, 10000);
}

setTheme(THEMES.includes(localStorage.getItem(THEME)) ? localStorage.getItem(THEME) : "system");
listen();
connect(sessionStorage.getItem(TOKEN) || "");

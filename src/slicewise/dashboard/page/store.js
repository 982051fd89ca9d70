// What the feed told, by section and key; rows of nodes are unfolded only when they are shown.

export const NOT_READY = 1;
export const UNSCHEDULABLE = 2;
export const SILENT = 4;
export const UNHEALTHY = 1;
export const MIG = 2;
export const CORDONED = 4;

const KEYS = {
  about: () => "",
  totals: () => "",
  models: (row) => row[0],
  points: (row) => row[0],
  waiting: (row) => row[0],
  quota: (row) => `${row[0]}|${row[1]}`,
  troubles: (row) => `${row[0]}|${row[1]}`,
  usage: (row) => row[0],
  nodes: (row) => row[0],
};
// How it is known which GPUs a pod holds, where that is not recorded.
const DOUBTS = ["which GPUs is unknown", "", "GPUs not recorded yet"];
const SECTIONS = Object.keys(KEYS);
const order = new Intl.Collator("en", { numeric: true });

export class Store {
  constructor() {
    this.reset();
  }

  reset() {
    for (const name of SECTIONS) this[name] = new Map();
    this.sorted = null;
    this.unfolded = new Map();
  }

  // The names of the sections that changed, and the nodes among them.
  apply(message) {
    const changed = new Set();
    const nodes = new Set();
    if (message.reset) {
      this.reset();
      SECTIONS.forEach((name) => changed.add(name));
    }
    for (const name of SECTIONS) {
      const part = message[name];
      if (!part) continue;
      changed.add(name);
      const table = this[name];
      const key = KEYS[name];
      const before = table.size;
      for (const row of part.rows) {
        table.set(key(row), row);
        if (name === "nodes" || name === "usage") this.forget(row[0], nodes);
      }
      for (const text of part.gone || []) {
        const gone = name === "points" || name === "models" ? Number(text) : text;
        table.delete(gone);
        if (name === "nodes" || name === "usage") this.forget(gone, nodes);
      }
      if (name === "nodes" && (table.size !== before || part.gone)) this.sorted = null;
    }
    return { changed, nodes };
  }

  forget(name, nodes) {
    this.unfolded.delete(name);
    nodes.add(name);
  }

  names() {
    this.sorted ??= [...this.nodes.keys()].sort(order.compare);
    return this.sorted;
  }

  about1() {
    return this.about.get("") || {};
  }

  totals1() {
    return this.totals.get("") || null;
  }

  model(number) {
    const row = this.models.get(number);
    return row ? row[1] : "";
  }

  // The node with its GPUs, each with the parts that pods hold of it.
  node(name) {
    let found = this.unfolded.get(name);
    if (found === undefined) {
      const row = this.nodes.get(name);
      if (!row) return null;
      found = this.unfold(row);
      this.unfolded.set(name, found);
    }
    return found;
  }

  unfold([name, flags, pool, gpus, pods]) {
    const node = { name, flags, pool, gpus: [], pods: [] };
    node.gpus = gpus.map(([index, model, memory, state, isolation], at) => ({
      node: name, at, index, model: this.model(model), memory, flags: state, isolation: isolation || "none",
      cores: 0, held: 0, parts: [], use: null,
    }));
    for (const [namespace, pod, certain, ...pieces] of pods) {
      // Behind its pieces stands what its record promises of limits, where that is anything.
      const isolation = typeof pieces.at(-1) === "string" ? pieces.pop() : "none";
      const owner = { namespace, name: pod, key: `${namespace}/${pod}`, doubt: DOUBTS[certain], isolation, parts: [] };
      node.pods.push(owner);
      for (let at = 0; at < pieces.length; at += 3) {
        const gpu = node.gpus[pieces[at]];
        const part = { pod: owner, gpu, cores: pieces[at + 1], memory: pieces[at + 2], use: null };
        owner.parts.push(part);
        gpu.parts.push(part);
        gpu.cores += part.cores;
        gpu.held += part.memory;
      }
    }
    this.addUse(node);
    return node;
  }

  addUse(node) {
    const row = this.usage.get(node.name);
    if (!row) return;
    const [, gpus, pods] = row;
    for (const [at, cores, memory] of gpus) {
      if (node.gpus[at]) node.gpus[at].use = { cores, memory };
    }
    for (const [pod, at, cores, memory] of pods) {
      const part = node.gpus[at]?.parts.find((each) => each.pod.key === pod);
      if (part) part.use = { cores, memory };
    }
  }

  // Whether anything about the node needs attention.
  troubled(row) {
    return Boolean(row[1] & (NOT_READY | SILENT)) || row[3].some((gpu) => gpu[3] & (UNHEALTHY | CORDONED));
  }
}

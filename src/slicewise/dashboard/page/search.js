// What a search means: words that must all be found, each anywhere or in one field.

const FIELDS = { node: "node", model: "model", ns: "namespace", namespace: "namespace", pod: "pod", is: "is" };

export function readSearch(text) {
  return text.toLowerCase().split(/\s+/).filter(Boolean).map((word) => {
    const [head, ...rest] = word.split(":");
    const field = FIELDS[head];
    return field && rest.length ? { field, text: rest.join(":") } : { field: "", text: word };
  });
}

function nodeIs(store, row, word) {
  const [, flags, , gpus, pods] = row;
  if (word === "trouble") return store.troubled(row);
  if (word === "free") {
    const touched = new Set(pods.flatMap((pod) => pod.filter((_, at) => at > 2 && at % 3 === 0)));
    return !flags && gpus.some((gpu, at) => !gpu[3] && !touched.has(at));
  }
  if (word === "busy") return pods.length > 0;
  return false;
}

function podMatches(pod, { field, text }) {
  const namespace = pod[0].toLowerCase();
  const name = pod[1].toLowerCase();
  if (field === "namespace") return namespace === text || (text !== "" && namespace.startsWith(text));
  return name.includes(text) || `${namespace}/${name}`.includes(text);
}

function wordMatches(store, row, word) {
  const { field, text } = word;
  if (!text) return true;
  if (field === "is") return nodeIs(store, row, text);
  if ((!field || field === "node") && row[0].toLowerCase().includes(text)) return true;
  if (!field || field === "model") {
    if (row[3].some((gpu) => store.model(gpu[1]).toLowerCase().includes(text))) return true;
  }
  if (field === "node" || field === "model") return false;
  return row[4].some((pod) => podMatches(pod, word));
}

export const nodeMatches = (store, row, words) => words.every((word) => wordMatches(store, row, word));

// Whether a search is about pods, and this pod is one of those it finds.
export function picksPods(words) {
  return words.filter(({ field, text }) => text && (field === "pod" || field === "namespace"));
}

export const podPicked = (pod, words) => words.every((word) => podMatches([pod.namespace, pod.name], word));

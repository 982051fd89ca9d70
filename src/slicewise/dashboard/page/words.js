// Amounts, times and names as people read them.

const VENDOR = /^(NVIDIA|Tesla|GeForce|Quadro)[\s-]+/i;

export const modelName = (model) => (model || "unknown model").replace(VENDOR, "").replace(VENDOR, "");

export function gib(mib) {
  const value = mib / 1024;
  return value >= 100 || Number.isInteger(value) ? String(Math.round(value)) : value.toFixed(1);
}

export const percent = (part, whole) => (whole ? Math.round((100 * part) / whole) : 0);

export const plural = (count, word, many = `${word}s`) => `${count.toLocaleString("en")} ${count === 1 ? word : many}`;

export function ago(milliseconds) {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

export const clock = (milliseconds) =>
  new Date(milliseconds).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });

// A pod has the same colour wherever and whenever it is drawn: its name decides.

const known = new Map();

function hash(text) {
  let value = 0x811c9dc5;
  for (let at = 0; at < text.length; at++) value = Math.imul(value ^ text.charCodeAt(at), 0x01000193);
  value ^= value >>> 15;
  value = Math.imul(value, 0x2c1b3c6d);
  return (value ^ (value >>> 13)) >>> 0;
}

export function podColour(pod) {
  let colour = known.get(pod);
  if (colour === undefined) {
    const value = hash(pod);
    if (known.size > 20000) known.clear();
    // Hue and two steps of lightness and strength, so that neighbours in hue still differ.
    colour = `hsl(${value % 360} ${48 + 18 * ((value >>> 9) & 1)}% calc(var(--pod-light) + ${9 * ((value >>> 10) & 1)}%))`;
    known.set(pod, colour);
  }
  return colour;
}

// Making and finding elements; texts always go in as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

export const find = (selector, within = document) => within.querySelector(selector);

function fill(element, facts, children) {
  for (const [name, value] of Object.entries(facts)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [kind, run] of Object.entries(value)) element.addEventListener(kind, run);
    else if (name === "data") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export const make = (tag, facts = {}, ...children) => fill(document.createElement(tag), facts, children);

export const draw = (tag, facts = {}, ...children) => fill(document.createElementNS(SVG, tag), facts, children);

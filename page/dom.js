// Makes elements. Text always comes in as text, never as markup: what has markup goes through markdown.js.

export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'class') element.className = value;
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function svg(tag, attributes, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// A row of a table; `tag` is that of its cells.
export const row = (tag, ...cells) => el('tr', {}, ...cells.map((cell) => el(tag, {}, cell instanceof Node ? cell : String(cell))));

export const find = (id) => document.getElementById(id);

const numbers = new Intl.NumberFormat('en');
export const number = (n) => numbers.format(n);
export const seconds = (ms) => `${(ms / 1000).toFixed(ms < 9950 ? 2 : 0)} s`;

// Of something since so many seconds after 1970.
export function age(since) {
  const s = Math.max(0, Date.now() / 1000 - since);
  return s < 90 ? `${Math.round(s)} s` : s < 5400 ? `${Math.round(s / 60)} min` : s < 129_600 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86_400)} d`;
}

export function bytes(n) {
  const units = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  for (; n >= 1024 && unit < units.length - 1; unit++) n /= 1024;
  return `${n.toFixed(unit > 0 && n < 100 ? 1 : 0)} ${units[unit]}`;
}

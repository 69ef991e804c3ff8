// The messages on the screen, in parts of PART: a part out of view is one box to the browser, so that a frame of a long
// conversation costs what is in view, and not each of its messages. style.css leaves those parts undrawn.

import { el } from './dom.js';

const PART = 16; // messages: more, and the ones that come into view together take long; fewer, and the parts do

// What stays is not moved: the focus would be lost.
function become(parent, children) {
  const wanted = new Set(children);
  for (const child of [...parent.children]) if (!wanted.has(child)) child.remove();
  children.forEach((child, i) => { if (parent.children[i] !== child) parent.insertBefore(child, parent.children[i] ?? null); });
}

export class MessageList {
  constructor(element) {
    this.element = element;
    this.parts = new Map(); // by the indices of their messages divided by PART
  }

  part(index) {
    const at = Math.floor(index / PART);
    return [at, this.parts.get(at) ?? el('div', { class: 'part' })];
  }

  // Shows the elements as the messages from index `first` on, and nothing else. Those that stay where they are keep the
  // focus.
  show(first, elements) {
    const parts = new Map();
    for (let i = 0; i < elements.length;) {
      const [at, part] = this.part(first + i);
      const end = (at + 1) * PART - first;
      become(part, elements.slice(i, end));
      parts.set(at, part);
      i = end;
    }
    become(this.element, [...parts.values()]);
    this.parts = parts;
  }

  // Shows the element as the message at the index, which is the one before the first that is shown.
  prepend(index, element) {
    const [at, part] = this.part(index);
    part.prepend(element);
    if (!this.parts.has(at)) this.element.prepend(part);
    this.parts.set(at, part);
  }
}

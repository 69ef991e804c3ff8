// Images and sounds that go with the next message: chosen, pasted or dropped.

import { el, find } from './dom.js';

const formats = { 'audio/wav': 'wav', 'audio/x-wav': 'wav', 'audio/wave': 'wav', 'audio/mpeg': 'mp3', 'audio/mp3': 'mp3', 'audio/flac': 'flac', 'audio/x-flac': 'flac' };

const read = (file) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.onload = () => resolve(reader.result);
  reader.onerror = () => reject(reader.error);
  reader.readAsDataURL(file);
});

export class Attachments {
  // `takes` tells which kinds the model takes: a set of 'image', 'audio'; `say` shows a notice.
  constructor(takes, say) {
    this.takes = takes;
    this.say = say;
    this.files = [];
  }

  async add(list) {
    for (const file of list) {
      const kind = file.type.startsWith('image/') ? 'image' : formats[file.type] ? 'audio' : null;
      if (!kind || !this.takes().has(kind)) this.say(`This model does not take ${file.name || file.type || 'this file'}.`);
      else this.files.push({ kind, name: file.name, format: formats[file.type], data: await read(file) });
    }
    this.show();
  }

  take() {
    const { files } = this;
    this.files = [];
    this.show();
    return files;
  }

  show() {
    const box = find('attachments');
    box.hidden = this.files.length === 0;
    box.replaceChildren(...this.files.map((file, i) => el('span', { class: 'attachment' },
      file.kind === 'image' ? el('img', { src: file.data, alt: '' }) : null, file.name,
      el('button', { class: 'quiet', type: 'button', 'aria-label': `Leave out ${file.name}`, onclick: () => { this.files.splice(i, 1); this.show(); } }, '×'))));
  }
}

// Files that go with the next message: chosen, pasted or dropped. They are there at once, and read meanwhile. Images and
// sounds are for models that take them, texts (text_files.js) for all.

import { el, find } from './dom.js';
import { isTextByName, readText } from './text_files.js';

const formats = { 'audio/wav': 'wav', 'audio/x-wav': 'wav', 'audio/wave': 'wav', 'audio/vnd.wave': 'wav', 'audio/mpeg': 'mp3', 'audio/mp3': 'mp3', 'audio/flac': 'flac', 'audio/x-flac': 'flac' };

const pictures = ['image/png', 'image/jpeg', 'image/webp', 'image/gif', 'image/bmp'];

// What a file is to the model. A drawing in SVG is text.
function kindOf({ name, type }) {
  const kind = type.split('/')[0];
  return ['image', 'audio', 'video'].includes(kind) && type !== 'image/svg+xml' && !isTextByName(name) ? kind : 'text';
}

const read = (file) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.onload = () => resolve(reader.result);
  reader.onerror = () => reject(reader.error);
  reader.readAsDataURL(file);
});

export class Attachments {
  // `takes` tells which kinds the model takes: a set of 'image', 'audio'; `say` shows a notice; `changed` is called when
  // there are others, or one was read, `insert` with a text that is to stand in the message itself.
  constructor(takes, say, changed, insert) {
    Object.assign(this, { takes, say, changed, insert });
    this.failures = 0; // files that could not be read
    this.files = []; // data null: it is being read, and `ready` settles when it was
  }

  add(list) {
    for (const file of list) {
      const name = file.name || file.type || 'a file', kind = kindOf(file), takes = this.takes().has(kind);
      if (kind === 'text') this.begin({ kind, name, data: null }, file, readText);
      else if (!takes) this.say(`This model does not take ${name}: it takes ${[...this.takes(), 'text'].filter((one, i, all) => all.indexOf(one) === i).join(', ')}.`);
      else if (kind === 'image' && pictures.includes(file.type)) this.begin({ kind, name: file.name, data: null }, file, read);
      else if (kind === 'audio' && formats[file.type]) this.begin({ kind, name: file.name, format: formats[file.type], data: null }, file, read);
      else this.say(`${name} is not taken: ${kind === 'image' ? 'PNG, JPEG, WebP, GIF and BMP' : 'WAV, MP3 and FLAC'} are.`);
    }
    this.show();
  }

  // A text that has no file.
  addText(name, data) {
    this.files.push({ kind: 'text', name, data, ready: Promise.resolve() });
    this.show();
  }

  begin(attachment, file, reader) {
    this.files.push(attachment);
    attachment.ready = reader(file).then((data) => { attachment.data = data; }, (error) => {
      this.say(`${file.name} cannot be read: ${error.message}`);
      attachment.failed = true;
      this.failures++;
      this.leaveOut(attachment);
    }).then(() => this.show());
  }

  leaveOut(attachment) {
    this.files = this.files.filter((other) => other !== attachment);
    this.show();
  }

  // Puts others in place of what is there, which it returns, and which may still be read.
  swap(files) {
    const former = this.files;
    this.files = files.filter(({ failed }) => !failed).map((file) => (file.ready ? file : { ...file, ready: Promise.resolve() }));
    this.show();
    return former;
  }

  // Settles once all that are there were read. Those that could not be are there no more.
  async ready() {
    while (this.files.some(({ data }) => data === null)) await Promise.all(this.files.map(({ ready }) => ready));
  }

  // Once they were read.
  all() {
    return this.files.map(({ ready, ...file }) => file);
  }

  take() {
    const taken = this.all();
    this.files = [];
    this.show();
    return taken;
  }

  show() {
    this.changed();
    const box = find('attachments');
    box.hidden = this.files.length === 0;
    box.replaceChildren(...this.files.map((file) => el('span', { class: 'attachment', 'aria-busy': file.data === null ? 'true' : null },
      file.kind === 'image' && file.data ? el('img', { src: file.data, alt: '' }) : null, file.data === null ? `${file.name} is being read` : file.name,
      file.kind === 'text' && file.data !== null ? el('button', { class: 'quiet', type: 'button', 'aria-label': `Insert ${file.name} into the message`, onclick: () => { this.leaveOut(file); this.insert(file.data); } }, 'Insert') : null,
      el('button', { class: 'quiet', type: 'button', 'aria-label': `Leave out ${file.name}`, onclick: () => { this.leaveOut(file); find('composer-text').focus(); } }, '×'))));
  }
}

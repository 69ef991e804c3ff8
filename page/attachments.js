// Images and sounds that go with the next message: chosen, pasted or dropped. They are there at once, and read meanwhile.

import { el, find } from './dom.js';

const formats = { 'audio/wav': 'wav', 'audio/x-wav': 'wav', 'audio/wave': 'wav', 'audio/vnd.wave': 'wav', 'audio/mpeg': 'mp3', 'audio/mp3': 'mp3', 'audio/flac': 'flac', 'audio/x-flac': 'flac' };

const pictures = ['image/png', 'image/jpeg', 'image/webp', 'image/gif', 'image/bmp'];

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
    this.files = []; // data null: it is being read, and `ready` settles when it was
  }

  add(list) {
    for (const file of list) {
      const kind = pictures.includes(file.type) ? 'image' : formats[file.type] ? 'audio' : null;
      if (kind && this.takes().has(kind)) this.begin({ kind, name: file.name, format: formats[file.type], data: null }, file);
      else if (file.type.startsWith('image/') && this.takes().has('image')) this.say(`${file.name || file.type} is not taken: PNG, JPEG, WebP, GIF and BMP are.`);
      else this.say(`This model does not take ${file.name || file.type || 'this file'}.`);
    }
    this.show();
  }

  begin(attachment, file) {
    this.files.push(attachment);
    attachment.ready = read(file).then((data) => { attachment.data = data; }, (error) => {
      this.say(`${file.name} cannot be read: ${error.message}`);
      attachment.failed = true;
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
  ready() {
    return Promise.all(this.files.map(({ ready }) => ready));
  }

  take() {
    const taken = this.files.map(({ ready, ...file }) => file);
    this.files = [];
    this.show();
    return taken;
  }

  show() {
    const box = find('attachments');
    box.hidden = this.files.length === 0;
    box.replaceChildren(...this.files.map((file) => el('span', { class: 'attachment', 'aria-busy': file.data === null ? 'true' : null },
      file.kind === 'image' && file.data ? el('img', { src: file.data, alt: '' }) : null, file.data === null ? `${file.name} is being read` : file.name,
      el('button', { class: 'quiet', type: 'button', 'aria-label': `Leave out ${file.name}`, onclick: () => { this.leaveOut(file); find('composer-text').focus(); } }, '×'))));
  }
}

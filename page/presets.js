// Settings by name, and those that new conversations begin with. The browser keeps them; tabs share them.

import { samplingNames } from './conversations.js';
import { textStorage } from './texts.js';

const NAME = 'hearth.presets';
const OF_NEW = ''; // the name of those of new conversations
const texts = textStorage('localStorage');

// What may be in a conversation, of what was kept by whatever page.
function settingsOf({ system, sampling, reasoning } = {}) {
  const numbers = samplingNames.map((name) => [name, sampling?.[name]]).filter(([, value]) => Number.isFinite(value));
  return { system: typeof system === 'string' ? system : '', sampling: Object.fromEntries(numbers), ...typeof reasoning === 'boolean' && { reasoning } };
}

function read() {
  try {
    const kept = JSON.parse(texts.getItem(NAME) ?? '{}');
    return new Map(Object.entries(kept).map(([name, settings]) => [name, settingsOf(settings ?? {})]));
  } catch {
    return new Map();
  }
}

// False: the browser keeps nothing, or has no room.
function write(presets) {
  try {
    texts.setItem(NAME, JSON.stringify(Object.fromEntries(presets)));
    return true;
  } catch {
    return false;
  }
}

const change = (work) => { const presets = read(); work(presets); return write(presets); };

export const presets = {
  names: () => [...read().keys()].filter((name) => name !== OF_NEW).sort((a, b) => a.localeCompare(b)),
  get: (name) => read().get(name),
  set: (name, settings) => change((kept) => kept.set(name, settingsOf(settings))),
  remove: (name) => change((kept) => kept.delete(name)),
  ofNew: () => read().get(OF_NEW) ?? settingsOf(),
  setOfNew: (settings) => change((kept) => kept.set(OF_NEW, settingsOf(settings))),
};

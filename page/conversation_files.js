// Conversations in a file. What is imported comes from anywhere: every member is checked, others are dropped, and nothing
// is imported of a file with a fault.

import { branches, newConversation, newId, path, samplingNames } from './conversations.js';
import { all, saveAll } from './storage.js';
import { quoted } from './text_files.js';

const FORMAT = 1;

export const conversationsFile = (conversations) => JSON.stringify({ hearth_conversations: FORMAT, conversations }, null, 1);
export const exportAll = async () => conversationsFile(await all());

// Markdown in which no block of code is left open, as in a reply that was cut off.
function closed(words) {
  let fence = null;
  for (const [, marks] of words.matchAll(/^ {0,3}(`{3,}|~{3,})/gm)) {
    if (!fence) fence = marks;
    else if (marks[0] === fence[0] && marks.length >= fence.length) fence = null;
  }
  return fence ? `${words}\n${fence}` : words;
}

// The messages that are shown of a conversation, for people to read.
export function markdownOf(conversation) {
  const parts = [`# ${conversation.title}`];
  if (conversation.system) parts.push('**System**', conversation.system);
  for (const { role, text: words, model, files } of path(conversation)) {
    parts.push(role === 'user' ? '**You**' : `**${model ?? 'Model'}**`);
    if (files?.length) parts.push(files.map(({ name, kind }) => `_${name ?? kind}_`).join(', '));
    for (const one of files ?? []) if (one.kind === 'text') parts.push(quoted(one));
    parts.push(closed(words));
  }
  return `${parts.join('\n\n')}\n`;
}

// ---- Checks: each returns what is taken of a value, or throws what is wrong, and where ----

class Fault extends Error {}
const fault = (where, what) => new Fault(`${where} ${what}`);

const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);

const text = (value, where) => { if (typeof value !== 'string') throw fault(where, 'must be a text'); return value; };
const finite = (value, where) => { if (!Number.isFinite(value)) throw fault(where, 'must be a number'); return value; };
const flag = (value, where) => { if (typeof value !== 'boolean') throw fault(where, 'must be true or false'); return value; };
const oneOf = (...words) => (value, where) => { if (!words.includes(value)) throw fault(where, `must be ${words.join(' or ')}`); return value; };
const matching = (pattern, what) => (value, where) => { if (!pattern.test(text(value, where))) throw fault(where, `must be ${what}`); return value; };
const optional = (check) => (value, where) => (value === undefined || value === null ? undefined : check(value, where));
const time = (value, where) => { if (!(Math.abs(finite(value, where)) <= 8.64e15)) throw fault(where, 'must be milliseconds since 1970'); return value; };
const numberOrNothing = (value) => (Number.isFinite(value) ? value : undefined); // a former page wrote texts here, too
const nullable = (check) => (value, where) => (value === null ? null : check(value, where));

const list = (check) => (value, where) => {
  if (!Array.isArray(value)) throw fault(where, 'must be a list');
  return value.map((one, i) => check(one, `${where}[${i}]`));
};

const object = (members) => (value, where) => {
  if (!isObject(value)) throw fault(where, 'must be an object');
  const taken = Object.entries(members).map(([name, check]) => [name, check(Object.hasOwn(value, name) ? value[name] : undefined, `${where}.${name}`)]);
  return Object.fromEntries(taken.filter(([, member]) => member !== undefined));
};

const sampling = object(Object.fromEntries(samplingNames.map((name) => [name, optional(finite)])));

const divergence = object({ position: finite, message: optional(finite), role: optional(text), prompt: optional(text), nearest: optional(text) });

const figures = object({ ...Object.fromEntries(['shared', 'restored', 'computed', 'generated'].map((name) => [name, finite])),
  reused: optional(finite), drafted: optional(finite), tier: optional(text), firstMs: optional(finite), rate: optional(finite), divergence: optional(divergence) });

const media = object({ kind: oneOf('image', 'audio', 'text'), name: optional(text), format: optional(oneOf('wav', 'mp3', 'flac')), data: matching(/^data:(image|audio)\/[\w.+-]+;base64,[A-Za-z0-9+/=]*$/, 'an image or a sound in base64') });
const textFile = object({ kind: oneOf('text'), name: text, data: text });
const file = (value, where) => (value?.kind === 'text' ? textFile : media)(value, where);

const message = object({ id: text, parent: nullable(text), role: oneOf('user', 'assistant'), text, reasoning: optional(text), stopped: optional(flag), cut: optional(flag), changed: optional(flag), left: optional(flag), touched: optional(time), model: optional(text), at: optional(time), files: optional(list(file)),
  calls: optional(list(object({ name: text, arguments: text }))), error: optional(object({ message: text, status: numberOrNothing, code: optional(text) })), figures: optional(figures) });

const conversation = object({ title: text, named: optional(flag), pinned: optional(flag), about: optional(time), used: optional(time), system: optional(text), sampling: optional(sampling), reasoning: optional(flag), leaf: nullable(text) });

// ---- The tree ----

// The messages with names of their own, so that no name of the file matters.
function readMessages(value, where) {
  if (!isObject(value)) throw fault(where, 'must be an object');
  const entries = Object.entries(value).map(([key, one]) => [key, message(one, `${where}.${key}`)]);
  const names = new Map(entries.map(([key]) => [key, newId()]));
  const messages = entries.map(([key, one]) => {
    if (one.id !== key) throw fault(`${where}.${key}.id`, 'must be the name that it stands under');
    if (one.parent !== null && !names.has(one.parent)) throw fault(`${where}.${key}.parent`, 'must be another message or null');
    return { ...one, id: names.get(key), parent: one.parent === null ? null : names.get(one.parent) };
  });
  return { names, messages };
}

// Every message is reached from the beginning: none follows itself.
function checkTree(messages, where) {
  const following = branches({ messages });
  let reached = following.get(null) ?? [];
  let n = 0;
  for (; reached.length > 0; reached = reached.flatMap(({ id }) => following.get(id) ?? [])) n += reached.length;
  if (n < messages.length) throw fault(where, 'has messages that follow themselves');
}

function readConversation(value, where) {
  const taken = conversation(value, where);
  const { names, messages } = readMessages(value.messages, `${where}.messages`);
  checkTree(messages, `${where}.messages`);
  if (taken.leaf !== null && !names.has(taken.leaf)) throw fault(`${where}.leaf`, 'must be one of the messages or null');
  return { ...newConversation(), ...taken, title: taken.title.slice(0, 200), leaf: names.get(taken.leaf) ?? null, messages: Object.fromEntries(messages.map((one) => [one.id, one])) };
}

function read(source) {
  let whole;
  try { whole = JSON.parse(source); } catch { throw new Fault('it is no JSON'); }
  if (!isObject(whole) || !Array.isArray(whole.conversations)) throw new Fault('it holds no conversations');
  if (whole.hearth_conversations !== FORMAT) throw fault('hearth_conversations', `must be ${FORMAT}: another version wrote it`);
  return whole.conversations.map((one, i) => readConversation(one, `conversations[${i}]`));
}

// How many came. They get new names, so that nothing is replaced.
export async function importAll(source) {
  let conversations;
  try {
    conversations = read(source);
  } catch (error) {
    if (!(error instanceof Fault)) throw error;
    throw new Error(`Nothing was imported of this file: ${error.message}. Choose one that was exported here.`);
  }
  await saveAll(conversations);
  return conversations.length;
}

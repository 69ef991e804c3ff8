// Conversations: trees of messages, since an edited message or another reply begins a branch beside the former one. What
// is shown is the path from the root to `leaf`. storage.js keeps them.

import { quoted } from './text_files.js';

export const newId = () => (crypto.randomUUID ? crypto.randomUUID() : `${Date.now()}-${Math.random().toString(36).slice(2)}`);

export const newConversation = () => ({ id: newId(), title: 'New conversation', changed: Date.now(), system: '', sampling: {}, messages: {}, leaf: null });

// Of a conversation's `sampling`: fields of the request, each a number; what is not there is the model's own.
export const samplingNames = ['temperature', 'top_p', 'top_k', 'min_p', 'repeat_penalty', 'presence_penalty', 'frequency_penalty', 'seed', 'max_tokens'];

// A conversation that is `named` keeps its title whatever is written in it; one that is `pinned` stands above the others.
// `about` is when somebody said so, `used` when something was last written in it, where that was before it was last saved.

// A conversation's `reasoning`: whether the model is to reason, where its template leaves a choice; undefined: as it does
// by itself.

export const isEmpty = ({ messages }) => Object.keys(messages).length === 0;

// ---- The tree ----

// The first message gives the title, unless it was named.
export function nameAfter(conversation, { role, parent, text, files }) {
  const title = text || files?.[0]?.name;
  if (role === 'user' && parent === null && title && !conversation.named) conversation.title = title.replace(/\s+/g, ' ').slice(0, 60);
}

export function add(conversation, parent, message) {
  const added = { id: newId(), parent, ...message };
  conversation.messages[added.id] = added;
  conversation.leaf = added.id;
  nameAfter(conversation, added);
  return added;
}

// From the first message to the leaf.
export function path(conversation) {
  const messages = [];
  for (let id = conversation.leaf; id !== null && conversation.messages[id]; id = conversation.messages[id].parent) messages.push(conversation.messages[id]);
  return messages.reverse();
}

// Those that the model does not read: questions that are `left` out, and what was answered to them in any branch.
export function leftOut(messages) {
  const gone = new Set();
  let left = false;
  for (const message of messages) {
    if (message.role === 'user') left = message.left === true;
    if (left) gone.add(message);
  }
  return gone;
}

// The messages say something else, or are left out or not: of two tabs the later one holds.
export function touch(...messages) {
  for (const message of messages) message.touched = Date.now();
}

// Messages as questions with the replies to them.
export function turnsOf(messages) {
  const turns = [];
  for (const message of messages) {
    if (message.role === 'user' || turns.length === 0) turns.push([message]);
    else turns.at(-1).push(message);
  }
  return turns;
}

// From a message's id (null: none) to those that follow it, in the order they were made: each begins a branch.
export function branches(conversation) {
  const following = new Map();
  for (const message of Object.values(conversation.messages)) {
    if (!following.has(message.parent)) following.set(message.parent, []);
    following.get(message.parent).push(message);
  }
  return following;
}

// Shows the branch of a message, to the end of its newest reply.
export function choose(conversation, message) {
  const following = branches(conversation);
  for (let leaf = message; leaf; leaf = following.get(leaf.id)?.at(-1)) conversation.leaf = leaf.id;
}

// Takes a message and all that follows it out of the conversation. What is shown then is the branch that was made last in
// its place, or else what it follows.
export function drop(conversation, message) {
  const following = branches(conversation);
  const gone = new Set();
  for (const next = [message]; next.length > 0;) {
    const one = next.pop();
    gone.add(one.id);
    next.push(...following.get(one.id) ?? []);
  }
  for (const id of gone) delete conversation.messages[id];
  conversation.gone = [...conversation.gone ?? [], ...gone]; // so that another tab that has them does not bring them back
  if (!gone.has(conversation.leaf)) return;
  const other = following.get(message.parent).filter(({ id }) => !gone.has(id)).at(-1);
  conversation.leaf = message.parent;
  if (other) choose(conversation, other);
}

// ---- As the API has them ----

// What is written in a message, with the texts of its files before it.
export const textOf = ({ text, files }) => [...(files ?? []).filter(({ kind, data }) => kind === 'text' && data !== null).map(quoted), text].filter(Boolean).join('\n\n');

function contentOf(message) {
  const text = textOf(message), media = (message.files ?? []).filter(({ kind }) => kind !== 'text');
  if (media.length === 0) return text;
  const parts = media.map(({ kind, data, format }) => (kind === 'audio' ? { type: 'input_audio', input_audio: { data: data.replace(/^[^,]*,/, ''), format } }
    : { type: 'image_url', image_url: { url: data } }));
  return text ? [...parts, { type: 'text', text }] : parts;
}

// A last message of the assistant's is continued: with its reasoning, so that all of it is reused. Turns that are left out
// are not in it.
export function requestOf(conversation, model, messages) {
  const left = leftOut(messages);
  const read = messages.filter((message) => !left.has(message) && (!message.error || message.text));
  const list = read.map((message) => ({ role: message.role, content: contentOf(message) }));
  const last = messages.at(-1);
  if (last?.role === 'assistant' && last.reasoning && read.at(-1) === last) list.at(-1).reasoning_content = last.reasoning;
  if (conversation.system) list.unshift({ role: 'system', content: conversation.system });
  return { ...model && { model }, messages: list, ...conversation.sampling, ...conversation.reasoning !== undefined && { enable_thinking: conversation.reasoning } };
}

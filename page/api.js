// Requests to the server that the page comes from, and to no other. The API key lives in the session's storage and goes
// into a header, never into an address.

import { textStorage } from './texts.js';

const NAME = 'hearth.key';
const session = textStorage('sessionStorage');

export const getKey = () => session.getItem(NAME) ?? '';
export const setKey = (key) => session.setItem(NAME, key.trim());

// An answer that is no success: `status` is 0 where there was none.
export class ApiError extends Error {
  constructor(status, message, code) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

const advice = {
  0: 'Is the server running? Try again when it is.',
  401: 'Enter an API key of this server.',
  403: 'This API key does not allow it.',
  413: 'Send less at once.',
  429: 'The server has as much to do as it takes: try again in a moment.',
  503: 'The server is loading or stopping: try again in a moment.',
};
export const adviceFor = (error) => (error.code === 'context_length_exceeded' ? 'Shorten the conversation: edit an earlier message, or begin a new one.' : advice[error.status] ?? '');

async function failure(response) {
  const text = await response.text().catch(() => '');
  let error = {};
  try { error = JSON.parse(text).error ?? {}; } catch { /* no JSON: its text is the message */ }
  if (typeof error === 'string') error = { message: error }; // as Ollama's routes have it
  return new ApiError(response.status, error.message ?? (text.slice(0, 300) || response.statusText), error.code);
}

async function request(path, { body, signal, method = body ? 'POST' : 'GET' } = {}) {
  const headers = {};
  if (getKey()) headers.authorization = `Bearer ${getKey()}`;
  if (body) headers['content-type'] = 'application/json';
  let response;
  try {
    response = await fetch(path, { method, headers, signal, cache: 'no-store', body: body && JSON.stringify(body) });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError(0, 'The server does not answer.');
  }
  if (!response.ok) throw await failure(response);
  return response;
}

export const getJson = async (path, options) => (await request(path, options)).json();

// Errors in a stream have no status of HTTP, but the code that goes with one.
const statuses = { cancelled: 503, unavailable: 503, server_busy: 429 };

// The data of server-sent events, parsed, until [DONE].
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = '';;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split('\n');
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith('data: ')) continue;
      if (line === 'data: [DONE]') return;
      const data = JSON.parse(line.slice(6));
      if (data.error) throw new ApiError(statuses[data.error.code] ?? 500, data.error.message, data.error.code);
      yield data;
    }
  }
}

export async function* chat(body, signal) {
  yield* events(await request('/v1/chat/completions', {
    body: { ...body, stream: true, return_progress: true, timings_per_token: true, stream_options: { include_usage: true } }, signal,
  }));
}

// Lines of JSON that tell how far it is, until the model is there.
export async function* pull(model, signal) {
  const response = await request('/api/pull', { body: { model }, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = '';;) {
    const { value, done } = await reader.read();
    if (done) throw new ApiError(0, 'The server ended before the model was there.');
    const lines = (rest + value).split('\n');
    rest = lines.pop();
    for (const line of lines.filter(Boolean).map((text) => JSON.parse(text))) {
      if (line.error) throw new ApiError(500, line.error);
      yield line;
      if (line.status === 'success') return;
    }
  }
}

// What a model would take, and whether that fits: {fits, reason, size_bytes, …}. Needs the grant admin, as the next.
export const askFit = (model, signal) => getJson('/models/fit', { body: { model }, signal });

// 'load' or 'unload'. Needs the grant admin, as the next.
export const orderModel = (order, model) => getJson(`/models/${order}`, { body: { model } });
export const removeModel = (model) => request('/api/delete', { body: { model }, method: 'DELETE' });

// What /slots and /cache say, and what models have done, whenever it changes: {slots, cache, models}.
export async function* watch(signal) {
  yield* events(await request('/live', { signal }));
}

// {model, seq_id, hash, order} of a conversation in the cells, as /cache shows it. Needs the grant admin.
export const orderResident = (order) => getJson('/cache/resident', { body: order });

// Tokens of a text.
export async function countTokens(model, text, signal) {
  const { tokens } = await getJson('/tokenize', { body: { ...model && { model }, content: text }, signal });
  return tokens.length;
}

// A page of the stored conversations: {total, conversations, next}; `after` is the `next` of the page before, or null.
export const listStored = (limit, after) => getJson(`/cache/stored?limit=${limit}${after ? `&after=${encodeURIComponent(after)}` : ''}`);

// {tier, key, order} of a stored conversation. Needs the grant admin.
export const orderStored = (order) => getJson('/cache/stored', { body: order });

const LOOKUP_MS = 2000; // it waits for its turn as requests do, and the reply comes after it

// Where a prompt's prefix is. Not every API key may ask, and a server that is busy does not tell in time: then null.
export async function lookUp(body, signal) {
  try {
    return await getJson('/cache/lookup', { body, signal: AbortSignal.any([signal, AbortSignal.timeout(LOOKUP_MS)]) });
  } catch {
    if (signal.aborted) throw signal.reason;
    return null;
  }
}

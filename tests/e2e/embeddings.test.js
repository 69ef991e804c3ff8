// Embeddings and ranks over HTTP, with a chat model, an encoder, a decoder for embeddings and a reranker in one server:
// the official OpenAI client, and plain requests in the forms of rerank clients.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import OpenAI, { APIError, BadRequestError, NotFoundError } from 'openai';
import { demo, smallModel } from './lib/models.js';
import { serve, temporaryFolder } from './lib/server.js';

let server;
let openai;

const encoder = { vocab: 'bert-bge', layers: 2, embd: 64, heads: 2, 'kv-heads': 2, ctx: 512, ff: 128 };
const files = () => ({
  demo: { path: demo, context_window: 512 },
  bert: { path: smallModel('bert', encoder), n_seq_max: 2 },
  cut: { path: smallModel('bert', encoder), truncate: true },
  qwen: { path: smallModel('qwen3', { pooling: 'last' }), context_window: 512 },
  tokens: { path: smallModel('bert', encoder), pooling: 'none' },
  ranker: { path: smallModel('reranker', encoder) },
});

before(async () => {
  const models = Object.entries(files()).map(([name, keys]) => `  ${name}: ${JSON.stringify({ threads: 1, ...keys })}\n`);
  const config = join(temporaryFolder(), 'hearth.yaml');
  writeFileSync(config, `models:\n${models.join('')}`);
  server = await serve({ args: ['--config', config] });
  openai = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
});

after(() => server.stop());

const embed = (input, more) => openai.embeddings.create({ model: 'bert', input, ...more });
const length = (vector) => Math.hypot(...vector);
const near = (a, b, what, most = 1e-6) => {
  assert.equal(a.length, b.length);
  a.forEach((x, i) => assert.ok(Math.abs(x - b[i]) < most, `${what}: ${x} and ${b[i]} at ${i}`));
};

async function post(path, body) {
  const response = await fetch(`${server.url}${path}`, { method: 'POST', body: JSON.stringify(body) });
  return { status: response.status, body: await response.json() };
}

async function counter(name, model) {
  const text = await (await fetch(`${server.url}/metrics`)).text();
  return Number(new RegExp(`^${name}\\{model="${model}"\\} (\\d+)$`, 'm').exec(text)[1]);
}

// ---- OpenAI's client ----

test('the client gets normalised vectors, as floats and as base64', async () => {
  const floats = await embed(['hello world', 'something else'], { encoding_format: 'float' });
  assert.equal(floats.object, 'list');
  assert.equal(floats.model, 'bert');
  assert.deepEqual(floats.data.map((d) => [d.object, d.index, d.embedding.length]), [['embedding', 0, 64], ['embedding', 1, 64]]);
  assert.equal(floats.usage.prompt_tokens, 8);
  assert.equal(floats.usage.total_tokens, 8);
  for (const { embedding } of floats.data) assert.ok(Math.abs(length(embedding) - 1) < 1e-5);
  const plain = await embed(['hello world', 'something else']); // the client asks for base64 and decodes it
  plain.data.forEach((d, i) => near(Array.from(d.embedding), floats.data[i].embedding, 'base64'));
  const raw = await post('/v1/embeddings', { model: 'bert', input: 'hello world', encoding_format: 'base64' });
  assert.equal(Buffer.from(raw.body.data[0].embedding, 'base64').length, 4 * 64);
});

test('dimensions shorten a vector and normalise it again', async () => {
  const [whole, cut] = [await embed('hello'), await embed('hello', { dimensions: 16 })].map((r) => Array.from(r.data[0].embedding));
  assert.equal(cut.length, 16);
  assert.ok(Math.abs(length(cut) - 1) < 1e-5);
  near(cut, whole.slice(0, 16).map((x) => x / length(whole.slice(0, 16))), 'dimensions');
  await assert.rejects(embed('hello', { dimensions: 65 }), (e) => e instanceof BadRequestError && e.param === 'dimensions');
});

test('tokens are taken as they are, with an encoder and with a decoder', async () => {
  for (const model of ['bert', 'qwen']) {
    const reply = await embed([[10, 11, 12], [13]], { model });
    assert.equal(reply.usage.prompt_tokens, 4);
    assert.equal(reply.data.length, 2);
    near(Array.from((await embed([10, 11, 12], { model })).data[0].embedding), Array.from((await embed([[10, 11, 12]], { model })).data[0].embedding), model);
  }
});

test('wrong requests are 400 and name the field, an unknown model is 404 and names those there', async () => {
  for (const input of [[],[[]], [99999999], Array(2049).fill('a')]) {
    await assert.rejects(embed(input), (e) => e instanceof BadRequestError && e.param === 'input', JSON.stringify(input).slice(0, 40));
  }
  await assert.rejects(embed('a', { model: 'nobody' }), (e) => e instanceof NotFoundError && /demo, bert, cut, qwen, tokens, ranker/.test(e.message));
});

test('a model of another type is 400 and says what it is for', async () => {
  const isUnsupported = (pattern) => (e) => e instanceof APIError && e.status === 400 && pattern.test(e.message);
  await assert.rejects(embed('a', { model: 'demo' }), isUnsupported(/'demo' is of the type chat/));
  await assert.rejects(embed('a', { model: 'ranker' }), isUnsupported(/'ranker' is of the type rerank/));
  const chat = openai.chat.completions.create({ model: 'bert', messages: [{ role: 'user', content: 'hi' }] });
  await assert.rejects(chat, isUnsupported(/'bert' is of the type embedding/));
  assert.equal((await post('/v1/rerank', { model: 'bert', query: 'a', documents: ['b'] })).status, 400);
});

test('too long inputs are refused, or shortened as asked', async () => {
  const long = 'word '.repeat(600);
  await assert.rejects(embed(['short', long]), (e) => e instanceof BadRequestError && e.code === 'context_length_exceeded' && /input\[1\] has 602 tokens, which is too large to process/.test(e.message));
  assert.equal((await embed(long, { truncate: true })).usage.prompt_tokens, 512);
  assert.equal((await embed(long, { truncate_prompt_tokens: 20 })).usage.prompt_tokens, 20);
});

test('where the model is configured so, long inputs are shortened unless the request says otherwise', async () => {
  const long = 'word '.repeat(2000), ask = (body) => server.client.post('/v1/embeddings', { model: 'cut', input: long, ...body });
  const { status, json } = await ask({});
  assert.deepEqual([status, json.usage.prompt_tokens], [200, 512]);
  assert.equal((await ask({ truncate: null })).status, 200);
  const refused = await ask({ truncate: false });
  assert.equal(refused.status, 400);
  assert.match(refused.json.error.message, /too large to process.*"truncate": true/s);
});

test('hundreds of requests at once are all answered, however few contexts there are', async () => {
  const texts = Array.from({ length: 400 }, (_, i) => `${i} ${'word '.repeat(100)}`);
  const answers = await Promise.all(texts.map((input) => server.client.post('/v1/embeddings', { model: 'cut', input })));
  assert.deepEqual([...new Set(answers.map(({ status }) => status))], [200]);
  const { json: together } = await server.client.post('/v1/embeddings', { model: 'cut', input: texts });
  // The 400 are packed into other calls than the one, and rounding depends on that: 1.04e-6 was seen. Another text's
  // vector is a thousand times as far away.
  for (const i of [0, 199, 399]) near(answers[i].json.data[0].embedding, together.data[i].embedding, texts[i].slice(0, 5), 1e-5);
});

test('without a model in the request, each route takes the first of its type', async () => {
  assert.equal((await post('/v1/embeddings', { input: 'a' })).body.model, 'bert');
  assert.equal((await post('/v1/rerank', { query: 'a', documents: ['b'] })).body.model, 'ranker');
  assert.equal((await post('/v1/chat/completions', { messages: [{ role: 'user', content: 'hi' }], max_tokens: 1 })).body.model, 'demo');
});

test('64 inputs in one request need an eighth of the calls of 64 requests at most', async () => {
  const calls = () => counter('hearth_embed_decode_calls_total', 'bert');
  const inputs = Array.from({ length: 64 }, (_, i) => `input number ${i}`);
  const start = await calls();
  const together = await embed(inputs);
  const between = await calls();
  const alone = [];
  for (const input of inputs) alone.push((await embed(input)).data[0].embedding);
  assert.equal(await calls() - between, 64);
  assert.ok(8 * (between - start) <= 64, `${between - start} calls`);
  // Rounding depends on what a call packs; what tells inputs apart is a thousand times as large.
  together.data.forEach((d, i) => assert.ok(length(Array.from(d.embedding).map((x, k) => x - alone[i][k])) < 1e-3));
});

test('many requests at once all get their own vectors', async () => {
  const inputs = Array.from({ length: 40 }, (_, i) => Array.from({ length: 1 + (i % 7) }, (_, k) => `text ${i} part ${k}`));
  const expected = [];
  for (const input of inputs) expected.push(await embed(input));
  const replies = await Promise.all(inputs.map((input) => embed(input)));
  replies.forEach((reply, i) => reply.data.forEach((d, k) => {
    const difference = Array.from(d.embedding).map((x, n) => x - expected[i].data[k].embedding[n]);
    assert.ok(length(difference) < 1e-3);
  }));
});

// ---- llama-server's form ----

test('without pooling every token has a vector, in the form that has a place for it', async () => {
  const { body } = await post('/embedding', { model: 'tokens', content: 'hello world' });
  assert.equal(body.length, 1);
  assert.equal(body[0].embedding.length, 4); // begin, two words, end
  assert.ok(body[0].embedding.every((v) => v.length === 64));
  const refused = await post('/v1/embeddings', { model: 'tokens', input: 'hello world' });
  assert.equal(refused.status, 400);
  assert.match(refused.body.error.message, /pooling: none/);
});

test('embd_normalize chooses the norm', async () => {
  const get = async (norm) => (await post('/embeddings', { model: 'bert', content: 'hello', embd_normalize: norm })).body[0].embedding[0];
  assert.ok(Math.abs(length(await get(2)) - 1) < 1e-5);
  assert.ok(Math.abs((await get(1)).reduce((sum, x) => sum + Math.abs(x), 0) - 1) < 1e-5);
  assert.ok(Math.abs(Math.max(...(await get(0)).map(Math.abs)) - 32760) < 1);
  assert.ok(Math.abs(length(await get(-1)) - 1) > 0.1);
});

// ---- Ranks ----

const documents = ['a cat on a mat', 'the weather of tomorrow', 'x', 'a cat on a mat'];

test("ranks come in Jina's and Cohere's form, sorted, with scores from 0 to 1 and usage", async () => {
  for (const path of ['/v1/rerank', '/v1/reranking', '/v2/rerank', '/rerank', '/reranking']) {
    const { status, body } = await post(path, { model: 'ranker', query: 'cat', documents });
    assert.equal(status, 200);
    assert.equal(body.object, 'list');
    assert.equal(body.model, 'ranker');
    assert.match(body.id, /^rerank-/);
    const scores = body.results.map((r) => r.relevance_score);
    assert.deepEqual(scores, scores.toSorted((a, b) => b - a));
    assert.ok(scores.every((s) => s > 0 && s < 1));
    assert.deepEqual(body.results.map((r) => r.index).sort(), [0, 1, 2, 3]);
    assert.equal(body.usage.prompt_tokens, body.usage.total_tokens);
    assert.equal(body.meta.tokens.input_tokens, body.usage.prompt_tokens);
  }
});

test('top_n takes the best, with their documents where asked', async () => {
  const all = (await post('/v1/rerank', { query: 'cat', documents })).body.results;
  const { body } = await post('/v1/rerank', { query: 'cat', documents: documents.map((text) => ({ text })), top_n: 2, return_documents: true });
  assert.equal(body.results.length, 2);
  body.results.forEach((r, i) => {
    assert.equal(r.index, all[i].index);
    assert.equal(r.document.text, documents[r.index]);
  });
});

test('texts are ranked in the form of text-embeddings-inference', async () => {
  const { body } = await post('/rerank', { query: 'cat', texts: documents, return_text: true });
  assert.equal(body.length, 4);
  body.forEach((r) => assert.equal(r.text, documents[r.index]));
  const raw = (await post('/rerank', { query: 'cat', texts: documents, raw_scores: true })).body;
  raw.forEach((r, i) => assert.ok(Math.abs(1 / (1 + Math.exp(-r.score)) - body[i].score) < 1e-6));
});

test('wrong rank requests are 400 and name the field', async () => {
  for (const [request, param] of [[{ documents }, 'query'], [{ query: 'a' }, 'documents'], [{ query: 'a', documents: [] }, 'documents'], [{ query: 'a', documents, top_n: 0 }, 'top_n'], [{ query: 'a', documents: ['word '.repeat(600)] }, 'documents'], [{ query: 'word '.repeat(600), documents, truncation: true }, 'query']]) {
    const { status, body } = await post('/v1/rerank', request);
    assert.equal(status, 400);
    assert.equal(body.error.param, param);
  }
});

test('models tell their type', async () => {
  const { data } = await (await fetch(`${server.url}/v1/models`)).json();
  assert.deepEqual(data.map((m) => [m.id, m.meta.type, m.meta.pooling]), [['demo', 'chat', ''], ['bert', 'embedding', 'mean'],
    ['cut', 'embedding', 'mean'], ['qwen', 'embedding', 'last'], ['tokens', 'embedding', 'none'], ['ranker', 'rerank', 'rank']]);
});

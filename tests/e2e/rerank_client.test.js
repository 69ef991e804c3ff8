// Cohere's official client, and calls in Jina's form, against a reranker: order, limits, documents, errors.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Cohere, CohereClient, CohereClientV2 } from 'cohere-ai';
import { smallModel } from './lib/models.js';
import { serve, temporaryFolder } from './lib/server.js';

let server;
let v2;
let v1;

before(async () => {
  const encoder = { vocab: 'bert-bge', layers: 2, embd: 64, heads: 2, 'kv-heads': 2, ctx: 512, ff: 128 };
  const models = { writer: { path: smallModel('llama'), context_window: 256 }, ranker: { path: smallModel('reranker', encoder) } };
  const config = join(temporaryFolder(), 'hearth.yaml');
  const lines = Object.entries(models).map(([name, keys]) => `  ${name}: ${JSON.stringify({ threads: 1, ...keys })}\n`);
  writeFileSync(config, `models:\n${lines.join('')}`);
  server = await serve({ args: ['--config', config] });
  v2 = new CohereClientV2({ token: 'none', environment: server.url, maxRetries: 0 });
  v1 = new CohereClient({ token: 'none', environment: server.url, maxRetries: 0 });
});

after(() => server.stop());

const query = 'what is the capital of France';
const documents = ['Paris is the capital of France.', 'A cat sat on a mat.', 'The weather of tomorrow.', 'Bread and butter.',
  'The river Seine flows through Paris.', 'x', 'A cat sat on a mat.', 'Lyon is a town.'];
const ask = (more) => v2.rerank({ model: 'ranker', query, documents, ...more });

// Each document by itself: what it is worth must not depend on its neighbours (but for the last digits).
async function alone() {
  const scores = [];
  for (const document of documents) scores.push((await ask({ documents: [document] })).results[0].relevanceScore);
  return scores;
}

test('the client gets all documents, the best first, each with its own score', async () => {
  const reply = await ask();
  assert.match(reply.id, /\S/);
  assert.ok(reply.meta.billedUnits.searchUnits >= 1);
  assert.ok(reply.meta.tokens.inputTokens > documents.length);
  const { results } = reply;
  assert.deepEqual(results.map((one) => one.index).sort(), documents.map((_, i) => i));
  results.forEach((one, i) => {
    assert.ok(one.relevanceScore >= 0 && one.relevanceScore <= 1);
    if (i > 0) assert.ok(one.relevanceScore <= results[i - 1].relevanceScore, 'the best first');
    assert.deepEqual(Object.keys(one).sort(), ['index', 'relevanceScore']);
  });
  const scores = await alone();
  for (const one of results) assert.ok(Math.abs(one.relevanceScore - scores[one.index]) < 1e-3);
  assert.ok(new Set(scores.map((score) => score.toFixed(5))).size >= 5, 'documents are told apart');
});

test('the same documents get the same score, in whatever order', async () => {
  const order = [6, 3, 1, 0, 7, 5, 2, 4];
  const [plain, mixed] = [await ask(), await ask({ documents: order.map((i) => documents[i]) })];
  const by = (reply, of) => new Map(reply.results.map((one) => [of(one.index), one.relevanceScore]));
  const [first, second] = [by(plain, (i) => i), by(mixed, (i) => order[i])];
  for (const [i, score] of first) assert.ok(Math.abs(score - second.get(i)) < 1e-3, documents[i]);
  assert.ok(Math.abs(first.get(1) - first.get(6)) < 1e-3);
});

test('the score depends on the query', async () => {
  const [one, other] = [await ask(), await ask({ query: 'bread' })];
  assert.notDeepEqual(one.results.map((r) => r.relevanceScore), other.results.map((r) => r.relevanceScore));
});

test('topN are the best so many', async () => {
  const all = (await ask()).results;
  for (const topN of [1, 3, documents.length, 1000]) {
    const { results } = await ask({ topN });
    assert.equal(results.length, Math.min(topN, documents.length));
    results.forEach((one, i) => assert.ok(Math.abs(one.relevanceScore - all[i].relevanceScore) < 1e-3));
  }
});

test('long documents are shortened as the client says', async () => {
  const long = `Paris ${'and more words '.repeat(300)}`;
  const short = await ask({ documents: [long], maxTokensPerDoc: 20 });
  const shorter = await ask({ documents: [long], maxTokensPerDoc: 10 });
  assert.ok(short.meta.tokens.inputTokens > shorter.meta.tokens.inputTokens);
  assert.ok(short.meta.tokens.inputTokens < 60, `${short.meta.tokens.inputTokens} tokens`);
});

test("the first version's client is given its documents back", async () => {
  const reply = await v1.rerank({ model: 'ranker', query, documents: documents.map((text) => ({ text })), topN: 3, returnDocuments: true });
  assert.equal(reply.results.length, 3);
  for (const one of reply.results) assert.equal(one.document.text, documents[one.index]);
  const without = await v1.rerank({ model: 'ranker', query, documents, returnDocuments: false });
  assert.ok(without.results.every((one) => one.document === undefined));
});

test("errors are the client's own classes", async () => {
  const is = (kind, status, pattern) => (error) => {
    assert.ok(error instanceof kind, `${error.constructor.name}: ${error.message}`);
    assert.equal(error.statusCode, status);
    assert.match(error.body.error.message, pattern);
    return true;
  };
  await assert.rejects(ask({ model: 'nobody' }), is(Cohere.NotFoundError, 404, /nobody.*ranker/));
  await assert.rejects(ask({ documents: [] }), is(Cohere.BadRequestError, 400, /documents/));
  await assert.rejects(ask({ topN: -1 }), is(Cohere.BadRequestError, 400, /top_n/));
  await assert.rejects(ask({ maxTokensPerDoc: 0 }), is(Cohere.BadRequestError, 400, /max_tokens_per_doc/));
  await assert.rejects(ask({ model: 'writer' }), is(Cohere.BadRequestError, 400, /'writer' is of the type chat/));
});

test('a thousand documents are ranked in one request', async () => {
  const many = Array.from({ length: 1000 }, (_, i) => `document number ${i} about ${documents[i % 8]}`);
  const { results } = await ask({ documents: many });
  assert.equal(new Set(results.map((one) => one.index)).size, 1000);
});

test('calls at once each get their own', async () => {
  const scores = await alone();
  const replies = await Promise.all(documents.map((document) => ask({ documents: [document, documents[0]] })));
  replies.forEach((reply, i) => {
    const own = reply.results.find((one) => one.index === 0);
    assert.ok(Math.abs(own.relevanceScore - scores[i]) < 1e-3);
  });
});

// Jina's clients send documents as texts or as objects, and read results[].{index, relevance_score, document.text} and
// usage.total_tokens.
test("Jina's form", async () => {
  const jina = (more) => server.client.ask('/v1/rerank', { model: 'ranker', query, documents, ...more });
  const plain = await jina({ top_n: 3, return_documents: true });
  assert.equal(plain.model, 'ranker');
  assert.ok(plain.usage.total_tokens > 0);
  assert.equal(plain.results.length, 3);
  for (const one of plain.results) assert.deepEqual(one.document, { text: documents[one.index] });
  const objects = await jina({ documents: documents.map((text) => ({ text })), top_n: 3 });
  assert.deepEqual(objects.results.map((one) => one.index), plain.results.map((one) => one.index));
  const error = await server.client.refused(404, '/v1/rerank', { model: 'jina-reranker-v2-base-multilingual', query, documents });
  assert.deepEqual([error.param, error.code], ['model', 'model_not_found']);
  assert.equal((await server.client.refused(400, '/v1/rerank', { model: 'ranker', query: 7, documents })).param, 'query');
  assert.equal((await server.client.refused(400, '/v1/rerank', { model: 'ranker', query, documents: ['a', 7] })).param, 'documents');
  assert.equal((await server.client.refused(400, '/v1/rerank', { model: 'ranker', query, documents, return_documents: 'all' })).param, 'return_documents');
});

// Replies that come back as text: they have the tokens that were sampled, so that nothing is computed twice, and the prompt
// is the same text. The models are random and write letters alone, whose tokens another tokenising would not find again.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { smallModel } from './lib/models.js';
import { serve, temporaryFolder } from './lib/server.js';
import { saved } from './lib/store.js';

const user = (content) => ({ role: 'user', content });
const assistant = (content) => ({ role: 'assistant', content });
const letters = { grammar: 'root ::= [a-z ]+', temperature: 1 };
const start = (model, more) => serve({ model, models: { context_window: 1024, n_seq_max: 4, cache_min_tokens: 0, ...more } });

const ask = (server, messages, more) => server.client.chat({ messages, max_tokens: 60, ...letters, ...more });
const textOf = (reply) => reply.choices[0].message.content;
const cachedOf = (reply) => reply.usage.prompt_tokens_details.cached_tokens;
const all = (reply) => reply.usage.prompt_tokens + reply.usage.completion_tokens - 1; // the last token is in no cell

// The turn after a reply that came back as `text`.
const goOn = (server, messages, text, more) => ask(server, [...messages, assistant(text), user('Go on.')], { max_tokens: 1, ...more });

// What is computed of the turn after it: its new text, and what of the reply was computed before.
async function lost(server, seed, more) {
  const messages = [user(`Write something ${seed}.`)];
  const reply = await ask(server, messages, { seed, ...more });
  const next = await goOn(server, messages, textOf(reply), more);
  return Math.max(0, all(reply) - cachedOf(next));
}

const seeds = [1, 2, 3, 4, 5, 6];
const sum = (list) => list.reduce((a, b) => a + b, 0);

async function lostOf(server, more) {
  const list = [];
  for (const seed of seeds) list.push(await lost(server, seed, more));
  return sum(list);
}

for (const arch of ['llama', 'gemma3', 'qwen35']) {
  test(`${arch}: nothing of a reply is computed twice; without the key most of it is`, async () => {
    const model = smallModel(arch);
    const server = await start(model);
    assert.equal(await lostOf(server), 0);
    await server.stop();
    const without = await start(model, { reply_tokens: false });
    assert.ok(await lostOf(without) > 60 * seeds.length / 2);
    await without.stop();
  });
}

describe('one server', () => {
  let server;
  before(async () => { server = await start(smallModel('llama')); });
  after(() => server.stop());

  test('a conversation of ten turns computes what is new alone', async () => {
    const messages = [user('Hello.')];
    let before = null;
    for (let turn = 0; turn < 10; turn++) {
      const reply = await ask(server, messages, { seed: 100 + turn, max_tokens: 30 });
      if (before) assert.ok(cachedOf(reply) >= all(before), `turn ${turn}: ${cachedOf(reply)} of ${all(before)}`);
      messages.push(assistant(textOf(reply)), user('And then?'));
      before = reply;
    }
  });

  test('of a reply that the client changed by one byte what follows the change is computed', async () => {
    const messages = [user('Tell me.')];
    const reply = await ask(server, messages, { seed: 8 });
    for (const at of [0, 10, Math.floor(textOf(reply).length / 2), textOf(reply).length - 1]) {
      const text = `${textOf(reply).slice(0, at)}#${textOf(reply).slice(at + 1)}`;
      const next = await goOn(server, messages, text);
      assert.ok(cachedOf(next) <= reply.usage.prompt_tokens + at, 'what follows the change is computed');
    }
  });

  test('each of several choices is gone on from', async () => {
    const messages = [user('Choose.')];
    const { choices, usage } = await server.client.chat({ messages, n: 3, seed: 9, max_tokens: 40, ...letters });
    for (const { message: { content } } of choices) {
      const next = await goOn(server, messages, content);
      const own = usage.completion_tokens / choices.length;
      assert.ok(cachedOf(next) >= usage.prompt_tokens + own - 1, `${cachedOf(next)} of ${usage.prompt_tokens} and ${own}`);
    }
  });

  test('a stop string ends a reply: what came before it is reused but for a word', async () => {
    const messages = [user('Stop.')];
    const whole = await ask(server, messages, { seed: 10 });
    const stop = textOf(whole).slice(-8, -5);
    const reply = await ask(server, messages, { seed: 10, stop });
    assert.equal(reply.choices[0].finish_reason, 'stop');
    const next = await goOn(server, messages, textOf(reply));
    assert.ok(cachedOf(next) > reply.usage.prompt_tokens, `${cachedOf(next)}`);
  });

  test('a client that leaves in the middle, and sends what it got', async () => {
    const messages = [user('Leave.')];
    const stream = await server.client.stream('/v1/chat/completions', { messages, stream: true, max_tokens: 400, ...letters, seed: 11 });
    let text = '';
    for await (const chunk of stream.events()) {
      text += chunk.choices?.[0]?.delta?.content ?? '';
      if (text.length > 60) break; // which destroys the connection
    }
    stream.abort();
    await server.client.idle(10);
    const next = await goOn(server, messages, text);
    assert.ok(cachedOf(next) > 30, `${cachedOf(next)}`);
  });

  test('two tenants share nothing, though their replies are the same text', async () => {
    const messages = [user('Who am I?')];
    const ours = await ask(server, messages, { seed: 12, cache_salt: 'one' });
    const before = await goOn(server, messages, textOf(ours), { cache_salt: 'two' });
    assert.equal(cachedOf(before), 0);
    const mine = await goOn(server, messages, textOf(ours), { cache_salt: 'one' });
    assert.ok(cachedOf(mine) >= all(ours));
    assert.notEqual(before.usage.prompt_tokens, mine.usage.prompt_tokens, 'it is tokenised as other text is');
  });

  test('a completion that goes on from a completion', async () => {
    const prompt = 'Once upon a time';
    const reply = await server.client.complete({ prompt, max_tokens: 60, ...letters, seed: 13 });
    const next = await server.client.complete({ prompt: `${prompt}${reply.choices[0].text} and`, max_tokens: 1, ...letters });
    assert.ok(next.usage.prompt_tokens_details.cached_tokens >= all(reply));
  });

  test('a request that shares no cells gets no sampled tokens', async () => {
    const messages = [user('Nothing.')];
    const reply = await ask(server, messages, { seed: 14 });
    const mine = await goOn(server, messages, textOf(reply));
    const other = await goOn(server, messages, textOf(reply), { cache_prompt: false });
    assert.notEqual(other.usage.prompt_tokens, mine.usage.prompt_tokens);
  });
});

// What the store has when the process is killed is found again: the reply book is new, the token lists are not.
describe('after kill -9', () => {
  const sentences = ['The cat sat.', 'I do not know that.', 'Go to the house.'];
  const disk = (folder) => ({ 'cache.tiers.disk.path': folder });
  const begin = (arch, folder, more) => serve({ model: smallModel(arch), set: disk(folder), models: { context_window: 1024, n_seq_max: 4, cache_min_tokens: 0, ...more } });
  const literal = (words) => ({ grammar: `root ::= ${JSON.stringify(words)}`, temperature: 1, max_tokens: 60 });

  // A conversation, and what is computed of its next turn.
  async function converse(server, salt) {
    const messages = [user('Hello.')];
    let last;
    for (let turn = 0; turn < 6; turn++) {
      last = await server.client.chat({ messages, ...literal(sentences[turn % 3]), seed: turn, cache_salt: salt });
      messages.push(assistant(textOf(last)), user(`And what did the children and the old man of the house say about that, for the ${turn + 2}nd time?`));
    }
    return { messages, tokens: all(last) };
  }

  for (const arch of ['llama', 'gemma3', 'qwen35']) {
    test(`${arch}: replies have the tokens that were sampled; without the key they do not`, async () => {
      const folder = temporaryFolder();
      const first = await begin(arch, folder);
      const { messages, tokens } = await converse(first);
      await saved(first);
      first.signal('SIGKILL');
      await first.ended;
      const without = await begin(arch, folder, { reply_tokens: false });
      const plain = await without.client.chat({ messages, max_tokens: 1 });
      await without.stop();
      const second = await begin(arch, folder);
      const next = await second.client.chat({ messages, max_tokens: 1 });
      assert.ok(cachedOf(plain) < tokens - 20, `${cachedOf(plain)} of ${tokens} by its text alone`);
      assert.ok(cachedOf(next) >= tokens - 1, `${cachedOf(next)} of ${tokens}`);
      const { json: { prompt } } = await second.client.post('/apply-template', { messages });
      assert.ok(prompt.includes(sentences[2]));
      await second.stop();
    });
  }

  test('tenants see their own alone', async () => {
    const folder = temporaryFolder();
    const first = await begin('llama', folder);
    const { messages, tokens } = await converse(first, 'one');
    await saved(first);
    await first.stop();
    const second = await begin('llama', folder);
    const of = async (salt) => (await second.client.chat({ messages, max_tokens: 1, cache_salt: salt })).usage;
    const [mine, other, nobody] = [await of('one'), await of('two'), await of(undefined)];
    assert.ok(mine.prompt_tokens_details.cached_tokens >= tokens - 1);
    assert.equal(other.prompt_tokens_details.cached_tokens, 0);
    assert.equal(nobody.prompt_tokens_details.cached_tokens, 0);
    assert.equal(other.prompt_tokens, nobody.prompt_tokens);
    assert.ok(other.prompt_tokens < mine.prompt_tokens, 'it is tokenised as other text is');
    await second.stop();
  });
});

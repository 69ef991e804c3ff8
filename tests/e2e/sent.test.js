// Bodies of people who run servers like this one (lib/sent.json), each of which lost something or was refused: the words
// of a prompt, the digits of a number, a whole request for the sake of one tool or of an old message.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { smallModel } from './lib/models.js';
import { serve } from './lib/server.js';

const source = join(dirname(process.env.LLAMA_SERVER ?? ''), '..', '..', 'source', 'models');
const cases = JSON.parse(readFileSync(new URL('lib/sent.json', import.meta.url), 'utf8'));

const files = readdirSync(join(source, 'templates'));
const fileOf = (name) => join(source, 'templates', files.find((file) => file.endsWith(`${name}.jinja`) || file.includes(name.replace(/^[a-z]+-/, ''))));
const servers = {};

async function serverOf(key, options) {
  servers[key] ??= await serve({ model: smallModel('llama', options), set: { 'cache.tiers.disk.quota_mb': 0 } });
  return servers[key].client;
}

const chatml = join(source, 'templates', 'Qwen-Qwen2.5-7B-Instruct.jinja');
before(() => assert.ok(existsSync(chatml), chatml));
after(() => Promise.all(Object.values(servers).map((server) => server.stop())));

const callsOf = (json) => json.choices?.[0].message.tool_calls ?? [];
const isObject = (text) => {
  try {
    return typeof JSON.parse(text) === 'object';
  } catch {
    return false;
  }
};

// What the answer must be beyond 200.
const checks = {
  once: (words, { json }) => words.reduce((from, word) => {
    const at = json.prompt.indexOf(word, from);
    assert.ok(at >= 0, `${word} is in ${json.prompt}`);
    assert.equal(json.prompt.indexOf(word, at + 1), -1, `${word} is there once`);
    return at;
  }, 0),
  tokens: async (_, { json }, { client, route, body }) => {
    const joined = { ...body, system: body.system.map(({ text }) => text).join('\n') };
    const { json: other } = await client.post(route, joined);
    assert.ok(Math.abs(json.input_tokens - other.input_tokens) <= 2, `${json.input_tokens} tokens, ${other.input_tokens} in one block`);
  },
  calls: (_, { json }) => {
    const [{ finish_reason: reason }] = json.choices;
    if (reason === 'tool_calls') callsOf(json).forEach((call) => assert.ok(isObject(call.function.arguments), call.function.arguments));
  },
  pattern: (pattern, { json }) => {
    const [{ message, finish_reason: reason }] = json.choices;
    const text = callsOf(json)[0]?.function.arguments ?? message.content;
    if (reason !== 'length') assert.match(JSON.parse(text).p, new RegExp(pattern, 'u')); // JSON Schema counts code points
  },
  grows: async (_, { json }, { client, route, body }) => {
    const without = JSON.parse(JSON.stringify(body).replace('FOUNDWORD', ''));
    const { json: other } = await client.post(route, without);
    const sum = ({ usage }) => usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens;
    assert.ok(sum(json) > sum(other), 'the text is in the prompt');
  },
};

cases.forEach((one, i) => {
  for (const vocab of one.vocabularies ?? ['qwen2'])
    test(`${i}: ${one.kind}, ${one.route}, ${one.template ?? vocab}`, async () => {
      const template = one.template ? fileOf(one.template) : chatml;
      const client = await serverOf(`${template} ${vocab}`, { template, vocab });
      const answer = await client.post(one.route, one.body);
      assert.equal(answer.status, 200, answer.text);
      for (const [what, check] of Object.entries(checks)) if (one[what]) await check(one[what], answer, { client, ...one });
    });
});

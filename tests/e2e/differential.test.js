// hearth against llama-server of the same llama.cpp, with the same model file: 200 generated requests over the
// parameters of the three routes that generate, at temperature 0 or with the same seed. Text, tool calls, logprobs of
// tokens, finish reasons and usage are the same; where they are meant to differ, the table below says why.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { serve } from './lib/server.js';
import { peer } from './lib/peer.js';
import { demo } from './lib/models.js';
import { generator, pick } from './lib/random.js';

let hearth;
let llama;
const ends = [];

before(async () => {
  hearth = await serve({ models: { context_window: 2048, n_seq_max: 1 } });
  llama = await peer({ after: (end) => ends.push(end) }, demo, ['-c', '2048', '-np', '1']);
});

after(async () => {
  ends.forEach((end) => end());
  await hearth.stop();
});

// ---- Requests: the same on every run ----

const names = ['Ottilie', 'Marek', 'Suvi', 'Anneke'];
const questions = ['Who are you?', 'What is a prompt cache?', 'What is my name?', 'Say hello.', 'Repeat: one two three'];
const weather = {
  type: 'function',
  function: {
    name: 'get_weather', description: 'Weather of a city',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
};
const schema = {
  type: 'object', properties: { name: { type: 'string', maxLength: 8 }, age: { type: 'integer', minimum: 0, maximum: 9 } },
  required: ['name', 'age'],
};

// Parameters of sampling, each with its values; a request takes some of them.
const sampling = {
  top_k: [1, 5, 40, 0], top_p: [0.5, 0.9, 1], min_p: [0, 0.05, 0.3], typical_p: [1, 0.8], top_n_sigma: [-1, 1.5],
  xtc_probability: [0, 0.5], xtc_threshold: [0.05, 0.1], repeat_penalty: [1, 1.1, 1.5], repeat_last_n: [0, 16, 64],
  presence_penalty: [0, 0.7, -0.5], frequency_penalty: [0, 0.7], dry_multiplier: [0, 0.8], dry_base: [1.75],
  dry_allowed_length: [2, 4], dry_penalty_last_n: [0, 32], dry_sequence_breakers: [['\n', '.'], ['*']],
  dynatemp_range: [0, 0.3], dynatemp_exponent: [1, 2], mirostat: [0, 1, 2], mirostat_tau: [3, 5], mirostat_eta: [0.1],
  min_keep: [0, 3], logit_bias: [[[300, 4]], [[13, -100], [290, 2.5]]], ignore_eos: [false, true],
  samplers: [['top_k', 'temperature'], ['penalties', 'dry', 'top_p', 'min_p', 'temperature'], ['min_p', 'temperature', 'top_k']],
};
const forms = {
  stop: [['.'], ['a', 'the'], ['zzz']], max_tokens: [1, 8, 24],
  grammar: ['root ::= [a-z]+ "." ', 'root ::= ("yes" | "no")'], json_schema: [schema],
};

function some(random, table, chance) {
  const taken = {};
  for (const [name, values] of Object.entries(table)) if (random() < chance) taken[name] = pick(random, values);
  if (taken.grammar && taken.json_schema) delete taken.grammar;
  return taken;
}

function common(random) {
  const drawn = random() < 0.3;
  const body = {
    cache_prompt: false, max_tokens: 24, seed: Math.floor(random() * 1000) + 1,
    temperature: drawn ? pick(random, [0.5, 1, 1.4]) : 0, top_k: 40, top_p: 0.95, min_p: 0.05, repeat_penalty: 1,
    ...some(random, sampling, 0.15), ...some(random, forms, 0.2),
  };
  if (body.grammar || body.json_schema) delete body.ignore_eos; // both fail once the grammar is complete
  return body;
}

function messages(random) {
  const name = pick(random, names);
  const list = [{ role: 'user', content: `My name is ${name}.` }, { role: 'assistant', content: `Hello ${name}!` }];
  if (random() < 0.3) list.unshift({ role: 'system', content: 'You are a helpful assistant.' });
  if (random() < 0.3) list.length = 0;
  return [...list, { role: 'user', content: pick(random, questions) }];
}

function chat(random) {
  const body = { ...common(random), messages: messages(random) };
  if (random() < 0.3) Object.assign(body, { logprobs: true, top_logprobs: pick(random, [0, 1, 5]) });
  if (random() < 0.3) {
    Object.assign(body, { tools: [weather], tool_choice: pick(random, ['auto', 'none', 'required']), max_tokens: 64 });
    body.messages = [{ role: 'user', content: 'What is the weather in Lisbon?' }];
    for (const name of ['grammar', 'json_schema', 'ignore_eos', 'stop']) delete body[name];
  }
  return { path: '/v1/chat/completions', body };
}

const prompt = (random) => `<|im_start|>user\n${pick(random, questions)}<|im_end|>\n<|im_start|>assistant\n`;

function completion(random) {
  const body = { ...common(random), prompt: prompt(random) };
  if (random() < 0.4) body.logprobs = pick(random, [1, 3, 5]);
  return { path: '/v1/completions', body };
}

function native(random) {
  const { max_tokens: n_predict, ...rest } = common(random);
  const body = { ...rest, n_predict, prompt: prompt(random) };
  if (random() < 0.5) body.n_probs = pick(random, [1, 4, 8]);
  if (random() < 0.3) body.return_tokens = true;
  return { path: '/completion', body };
}

function requests() {
  const random = generator(20261121);
  const makers = [chat, completion, native];
  return Array.from({ length: 200 }, (_, i) => makers[i % 3](random));
}

// ---- What is compared ----

const logprob = (c) => ({
  bytes: c.bytes ?? [...Buffer.from(c.token)], log: c.logprob ?? c.prob,
  top: (c.top_logprobs ?? c.top_probs ?? []).map((top) => ({ bytes: top.bytes, log: top.logprob ?? top.prob })),
});

// The older of OpenAI's two forms has four lists; llama-server writes the newer one on both routes. Its likeliest tokens
// are members of an object, which JavaScript puts in an order of its own.
const olderForm = (l) => l.tokens.map((token, i) => ({
  token, logprob: l.token_logprobs[i],
  top_logprobs: Object.entries(l.top_logprobs[i]).map(([text, log]) => ({ bytes: [...Buffer.from(text)], logprob: log }))
    .sort((a, b) => b.logprob - a.logprob),
}));

function logprobs(reply) {
  const given = reply.completion_probabilities ?? reply.choices?.[0].logprobs;
  if (!given) return [];
  return (given.tokens ? olderForm(given) : given.content ?? given).map(logprob);
}

function outcome(reply) {
  const [choice] = reply.choices ?? [];
  const message = choice?.message;
  return {
    text: message?.content ?? choice?.text ?? reply.content ?? '',
    reasoning: message?.reasoning_content ?? '',
    calls: (message?.tool_calls ?? []).map((call) => [call.function.name, call.function.arguments]),
    finish: choice?.finish_reason ?? reply.stop_type,
    stop: reply.stopping_word ?? '',
    tokens: reply.tokens ?? [],
    prompt: reply.usage?.prompt_tokens ?? reply.tokens_evaluated,
    completion: reply.usage?.completion_tokens ?? reply.tokens_predicted,
  };
}

// llama-server reports the logprob of the token that ended the reply as well, which no API counts as part of it. Before a
// stop string it leaves out as many tokens as that string has by itself, hearth the token that adds nothing to the text;
// and it calls a token's bytes what could be shown when it came, which is more or less where a stop string might begin.
// A control token, of which the text shows nothing, hearth names.
// Logprobs of tokens that end within a character llama-server leaves out, so what is beyond ASCII is compared no further.
const isNamed = (mine, theirs) => theirs.bytes.length === 0 && /^<\|[a-z_]+\|>$/.test(Buffer.from(mine.bytes).toString());

function compareLogprobs(ours, theirs, what, stops) {
  const beyond = ours.findIndex((mine) => mine.bytes.some((byte) => byte > 127));
  if (beyond < 0) assert.ok(Math.abs(theirs.length - ours.length) <= 1, `${what}: ${ours.length} logprobs, llama-server has ${theirs.length}`);
  ours.slice(0, beyond < 0 ? theirs.length : beyond).forEach((mine, i) => {
    if (!stops && !isNamed(mine, theirs[i])) assert.deepEqual(mine.bytes, theirs[i].bytes, `${what}: token ${i}`);
    assert.ok(Math.abs(mine.log - theirs[i].log) < 1e-4, `${what}: ${mine.log} and ${theirs[i].log}`);
    const likeliest = (side) => side.top.map((top) => top.log).filter((log) => log > -50);
    likeliest(mine).forEach((log, k) => assert.ok(Math.abs(log - likeliest(theirs[i])[k]) < 1e-4, `${what}: top ${k}: ${log} and ${likeliest(theirs[i])[k]}`));
  });
}

// Where the two are meant to differ: what theirs has to be changed by.
const differences = [
  function theTokenThatEndsAReplyIsNoneOfItsTokens(theirs) {
    if (theirs.finish === 'eos') theirs.tokens.pop();
  },
  function aCharacterThatIsBrokenOffIsSaid(theirs, ours) {
    if (theirs.finish !== 'stop' && ours.text === `${theirs.text}\ufffd`) theirs.text = ours.text;
  },
  function blanksBeforeJsonAreNone(theirs, ours, request) { // as in llama-server's streams
    if (request.body.json_schema && ours.text === '') theirs.text = theirs.text.trimStart();
  },
];

function explained(theirs, ours, request) {
  differences.forEach((difference) => difference(theirs, ours, request));
  return theirs;
}

// A call that must be made: hearth's grammar does not let the model talk before it.
const talksFirst = (request, theirs) => request.body.tool_choice === 'required' && (theirs.calls.length === 0 || theirs.text !== '');

// logprobs without top_logprobs: OpenAI's API reports the logprob of the token itself, llama-server nothing.
const reportsLogprobs = (request) => !(request.body.logprobs === true && !request.body.top_logprobs);

test('200 generated requests have the same outcome', async () => {
  const faults = [];
  let compared = 0;
  for (const [i, request] of requests().entries()) {
    // Rows of a draft are rounded otherwise in weights of eight bits: numbers are compared without.
    const numbers = request.body.logprobs || request.body.n_probs ? { 'speculative.n_max': 0 } : {};
    const [ours, theirs] = await Promise.all([hearth.client.post(request.path, { ...request.body, ...numbers }), llama.post(request.path, request.body)]);
    const what = `request ${i} ${request.path} ${JSON.stringify(request.body)}`;
    try {
      assert.equal(ours.status, theirs.status, `${what}: ${ours.text} ${theirs.text}`);
      if (ours.status !== 200) continue;
      if (talksFirst(request, outcome(theirs.json))) {
        assert.deepEqual([outcome(ours.json).calls.length > 0, outcome(ours.json).text], [true, ''], what);
        continue;
      }
      const mine = outcome(ours.json);
      assert.deepEqual(mine, explained(outcome(theirs.json), mine, request), what);
      if (reportsLogprobs(request)) compareLogprobs(logprobs(ours.json), logprobs(theirs.json), what, request.body.stop !== undefined);
      compared++;
    } catch (fault) {
      faults.push(fault.message);
    }
  }
  assert.equal(faults.length, 0, `${faults.length} of 200 differ:\n${faults.slice(0, 12).join('\n\n')}`);
  assert.ok(compared > 180, `${compared} were answered`);
});

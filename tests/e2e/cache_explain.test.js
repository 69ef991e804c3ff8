// Why was this not cached: POST /cache/lookup, hearth cache explain, and the log line of a large miss say where a prompt
// diverges from the nearest one, and what both say there.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { generator } from './lib/random.js';
import { run, serve, temporaryFolder } from './lib/server.js';
import { saved } from './lib/store.js';
import { tokens } from './lib/wait.js';

const disk = temporaryFolder();
// Text has the tokenizer's tokens, and not those of a list that may be stored by then.
const options = { set: { 'cache.tiers.disk.path': disk, 'cache.boundary_align_tokens': 16 }, models: { cache_min_tokens: 1, reply_tokens: false } };
let server;
before(async () => { server = await serve(options); });
after(() => server.stop());

const lookup = (body, as = '') => server.client.ask(`/cache/lookup${as}`, body);
const explain = (body, ...more) => run(['cache', 'explain', '-', '--server', server.url, ...more], { input: JSON.stringify(body) });

const about = (day) => [
  { role: 'system', content: `Today is ${day}. You are a helpful assistant who answers in one short sentence.` },
  { role: 'user', content: 'What day is it?' },
];

// The tokens of a chat as the model is to see it.
const tokensOf = async (messages) => {
  const { prompt } = await server.client.ask('/apply-template', { messages });
  return (await server.client.ask('/tokenize', { content: prompt, add_special: true })).tokens;
};

const inCommon = (a, b) => {
  let n = 0;
  while (n < a.length && n < b.length && a[n] === b[n]) n++;
  return n;
};

test('an edited word is found, with the words on both sides', async () => {
  await server.client.chat({ messages: about('Monday'), max_tokens: 4 });
  const found = await lookup({ messages: about('Sunday') });
  const [mine, theirs] = [await tokensOf(about('Sunday')), await tokensOf(about('Monday'))];
  const { position, where, limit, common, prompt, nearest, message, role } = found.divergence;
  assert.equal(found.prompt_tokens, mine.length);
  assert.equal(position, inCommon(mine, theirs));
  assert.deepEqual({ where, limit }, { where: 'resident', limit: null });
  assert.deepEqual({ message, role }, { message: 0, role: 'system' });
  assert.ok(common.endsWith('Today is ') || common.endsWith('Today is'), common);
  assert.match(prompt, /^ ?Sunday\. You/);
  assert.match(nearest, /^ ?Monday\. You/);
  assert.equal(found.resident, position);
  assert.equal(found.computed, mine.length - position);
});

test('a prompt that is all there, one that goes on, and one like none', async () => {
  const prompt = tokens(100, 3);
  await server.client.complete({ prompt, max_tokens: 1 });
  const same = await lookup({ prompt });
  assert.deepEqual([same.divergence.position, same.divergence.prompt, same.computed], [100, '', 1]);
  const longer = await lookup({ prompt: [...prompt, 120, 121] });
  assert.deepEqual([longer.divergence.position, longer.divergence.prompt, longer.divergence.nearest], [100, 'xy', '']);
  const other = await lookup({ prompt, cache_salt: 'somebody else' });
  assert.deepEqual([other.divergence, other.computed], [null, 100], 'nobody learns of what another salt has');
  const unused = await lookup({ prompt, cache_prompt: false });
  assert.deepEqual([unused.computed, unused.divergence.limit], [100, 'cache_prompt']);
});

test('positions are those of a comparison with every prompt', async () => {
  const random = generator(7);
  const next = (n) => Math.floor(random() * n);
  const prompts = [];
  const draw = () => {
    const like = prompts.length > 0 ? prompts[next(prompts.length)] : [];
    const head = like.slice(0, next(like.length + 1));
    return [...head, ...Array.from({ length: 1 + next(60) }, () => 200 + next(3))];
  };
  for (let i = 0; i < 25; i++) {
    const asked = draw();
    const { divergence } = await lookup({ prompt: asked, cache_salt: 'oracle' });
    const expected = Math.max(0, ...prompts.map((prompt) => inCommon(prompt, asked)));
    assert.equal(divergence?.position ?? 0, expected, `${i}`);
    const prompt = draw();
    await server.client.complete({ prompt, max_tokens: 1, cache_salt: 'oracle' });
    prompts.push(prompt);
  }
});

test('the bodies of all APIs are looked up as they would be asked', async () => {
  const [system, user] = about('Friday');
  await server.client.chat({ messages: [system, user], max_tokens: 1 });
  const bodies = {
    chat: { messages: [system, user] },
    messages: { max_tokens: 5, system: system.content, messages: [user] },
    responses: { instructions: system.content, input: user.content },
    completion: { prompt: await tokensOf([system, user]) },
    ollama: { model: 'demo', messages: [system, user] },
  };
  for (const [as, body] of Object.entries(bodies)) {
    for (const query of ['', `?as=${as}`]) {
      const { divergence, prompt_tokens, computed } = await lookup(body, query);
      assert.deepEqual([divergence.position, computed], [prompt_tokens, 1], `${as}${query}`);
    }
  }
  const error = await server.client.refused(400, '/cache/lookup?as=cohere', bodies.chat);
  assert.equal(error.param, 'as');
});

describe('hearth cache explain', () => {
  test('says it for people', async () => {
    await server.client.chat({ messages: about('Monday'), max_tokens: 4 });
    const body = { messages: about('Sunday') };
    const found = await lookup(body);
    const { code, stdout, stderr } = await explain(body);
    assert.equal(code, 0, stderr);
    assert.match(stdout, new RegExp(`^demo: ${found.prompt_tokens} tokens, of which ${found.computed} would be computed\n`));
    assert.match(stdout, new RegExp(`^  resident +${found.resident}$`, 'm'));
    assert.match(stdout, /^ {2}disk +\d+$/m);
    assert.match(stdout, new RegExp(`^after ${found.divergence.position} tokens, in message 0 \\(system\\), the prompt diverges from the nearest one`, 'm'));
    assert.match(stdout, /^ {2}this prompt says +" ?Sunday/m);
    assert.match(stdout, /^ {2}the nearest says +" ?Monday/m);
    const file = join(temporaryFolder(), 'body.json');
    writeFileSync(file, JSON.stringify(body));
    assert.equal((await run(['cache', 'explain', file, '--server', `${server.url}/`])).stdout, stdout);
    const json = JSON.parse((await explain(body, '--json')).stdout);
    assert.deepEqual([json.computed, json.divergence.position], [found.computed, found.divergence.position], 'as the server answers');
  });

  test('the same words in other tokens are not shown twice', async () => {
    const letters = [...'the children went to the market'].map((letter) => letter.charCodeAt(0)); // the demo model's tokens
    await server.client.complete({ prompt: letters, max_tokens: 1, cache_salt: 'letters' });
    const { stdout } = await explain({ prompt: 'the children went to the market', cache_salt: 'letters' }, '--as', 'completion');
    assert.match(stdout, /^ {2}both go on +"\w+/m);
    assert.match(stdout, /the same words, in other tokens/);
    assert.doesNotMatch(stdout, /the nearest says|this prompt says/);
  });

  test('what is all there, and what is like nothing', async () => {
    await server.client.chat({ messages: about('Monday'), max_tokens: 4 });
    assert.match((await explain({ messages: about('Monday') })).stdout, /all of the prompt is there/);
    assert.match((await explain({ messages: about('Monday'), cache_salt: 'new' })).stdout, /nothing that is resident or stored/);
  });

  test('what goes wrong is one line that says what to do', async () => {
    const nobody = await run(['cache', 'explain', '-', '--server', 'http://127.0.0.1:9'], { input: '{}' });
    assert.equal(nobody.code, 1);
    assert.match(nobody.stderr, /^hearth cache explain: no server answers at http:\/\/127\.0\.0\.1:9: .*--server.*\n$/);
    assert.match((await explain({ messages: 5 })).stderr, /status 400: 'messages'/);
    assert.match((await run(['cache', 'explain', '/none.json'])).stderr, /none\.json/);
    const as = await explain({ prompt: 'a' }, '--as', 'cohere');
    assert.equal(as.code, 2);
    assert.match(as.stderr, /--as cohere: .*chat/);
  });
});

test('a large miss stands in the log, with positions and without a word of the prompts', async () => {
  const prompt = tokens(700, 11);
  await server.client.complete({ prompt, max_tokens: 1 });
  const { timings } = await server.client.complete({ prompt: [...prompt.slice(0, 100), ...tokens(600, 12)], max_tokens: 1 });
  const position = timings.cache_n;
  await server.says(new RegExp(`imc: most of the prompt was computed: nearest prompt id=\\S+ prompt_tokens=700 `
    + `cached_tokens=${position} nearest=resident common_tokens=${position} limit=none\n`));
});

test('after a restart the nearest one is read from what is known of the disk', async () => {
  await server.client.chat({ messages: about('Tuesday'), max_tokens: 4 });
  await saved(server);
  await server.stop();
  server = await serve({ ...options, set: { ...options.set, 'server.insecure_logging': true } });
  const { divergence } = await lookup({ messages: about('Thursday') });
  assert.equal(divergence.where, 'disk');
  assert.equal(divergence.position, inCommon(await tokensOf(about('Thursday')), await tokensOf(about('Tuesday'))));
  assert.ok(!divergence.prompt.startsWith(divergence.nearest.slice(0, 3)));
});

test('words stand in the log where server.insecure_logging wants them', async () => {
  const letters = (n, first) => Array.from({ length: n }, (_, i) => 97 + ((i * 7 + first) % 26));
  await server.client.complete({ prompt: letters(700, 1), max_tokens: 1 });
  await server.client.complete({ prompt: [...letters(100, 1), ...letters(600, 2)], max_tokens: 1 });
  const text = (tokens) => String.fromCharCode(...tokens);
  const [mine, theirs] = [text(letters(8, 2)), text(letters(108, 1).slice(100))];
  await server.says(new RegExp(`imc: words where the prompt diverges id=\\S+ prompt=${mine} nearest=${theirs}\n`));
});

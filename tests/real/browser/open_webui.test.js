// Open WebUI, unmodified, in a browser, with real models: what a user clicks, what hearth is asked, what the page shows.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { browser } from '../../e2e/lib/browser.js';
import { serve, temporaryFolder } from '../../e2e/lib/server.js';
import { until } from '../../e2e/lib/wait.js';
import { realModel } from '../lib/models.js';
import { prose } from '../lib/text.js';
import { attach, edit, lastReply, openChat, openWebUi, regenerate, replied, send } from './lib/open_webui.js';
import { record } from './lib/recorder.js';

const python = process.env.HEARTH_REAL_OPEN_WEBUI; // of a venv with what requirements.txt names
const shots = process.env.HEARTH_REAL_SHOTS; // a folder that is there: screenshots go into it
const [chat, embed] = [realModel('smollm2'), realModel('minilm')];
const skip = chat.skip || embed.skip ||
  (python ? false : 'HEARTH_REAL_OPEN_WEBUI is not set: scripts/real.sh open-webui prints what it has to be');

const red = { name: 'red.png', mimeType: 'image/png', buffer: Buffer.from('iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAIAAAD8GO2jAAAAKElEQVR4nO3NsQ0AAAzCMP5/un0CNkuZ41wybXsHAAAAAAAAAAAAxR4yw/wuPL6QkAAAAABJRU5ErkJggg==', 'base64') };
const secret = 'The password of the lighthouse is 4711.';
const passage = `${secret} The lighthouse stands on a rock a mile from the harbour, and nobody enters it without the password. `
  + 'Its keeper asks for the password at the iron door, once in the morning and once at night. Who does not know the password of '
  + 'the lighthouse has to row back, even in a storm. The keeper wrote it on the wall behind the great lamp, lest he forget it '
  + 'himself. Ships see the light of the lamp from twenty miles, and sailors say that the lighthouse was never dark in a hundred '
  + 'years. The boat with oil for the lamp comes on the first day of each month, and its captain knows the password as well.';
const question = 'What is the password of the lighthouse?';

// English prose of so many bytes, no two paragraphs of it alike, with the passage in the middle.
function documentOf(bytes) {
  const paragraphs = prose.split('\n\n');
  let text = '';
  for (let i = 0, hidden = false; text.length < bytes; i++) {
    if (!hidden && text.length > bytes / 2) {
      text += `${passage}\n\n`;
      hidden = true;
    }
    text += `${i}. ${paragraphs[i % paragraphs.length]}\n\n`;
  }
  return { name: 'story.txt', mimeType: 'text/plain', buffer: Buffer.from(text) };
}

describe('Open WebUI', { skip }, () => {
  const ends = [];
  const openai = 'chat', ollama = 'chat:latest'; // the same model, by each connection
  const paths = { [openai]: '/v1/chat/completions', [ollama]: '/api/chat' };
  let server, recorder, webUi, chromium;
  before(async () => {
    const t = { after: (end) => ends.push(end) };
    const config = join(temporaryFolder(), 'hearth.yaml');
    writeFileSync(config, JSON.stringify({
      server: { any_model_name: false },
      models: {
        chat: { path: chat.path, n_seq_max: 4, context_window: 8192, threads: 1, sampling: { temperature: 0 } },
        embed: { path: embed.path, n_seq_max: 1, threads: 1 },
        cutting: { path: embed.path, n_seq_max: 1, threads: 1, truncate: true },
      },
    }));
    server = await serve({ t, args: ['--config', config] });
    recorder = await record(t, server.port);
    webUi = await openWebUi(t, python, recorder.url, {
      // Its own tools are 6,000 tokens, which only the test of tools wants.
      DEFAULT_MODEL_PARAMS: JSON.stringify({ function_calling: 'legacy', max_tokens: 40 }), CHAT_RESPONSE_MAX_TOOL_CALL_ITERATIONS: '2',
      RAG_EMBEDDING_ENGINE: 'openai', RAG_EMBEDDING_MODEL: 'embed',
    });
    chromium = await browser(t);
  }, { timeout: 600_000 });
  after(() => ends.reverse().reduce((before, end) => before.then(end), Promise.resolve()));

  const shoot = async (page, name) => { if (shots) await page.screenshot({ path: join(shots, `${name}.png`) }); };
  const end = async (page, name) => {
    await shoot(page, name);
    assert.deepEqual(page.faults, []);
    await page.context().close();
  };
  const asked = (model) => recorder.of(paths[model]);

  test('the models of both connections can be chosen', async () => {
    const page = await openChat(chromium, webUi, openai);
    await page.click('#model-selector-model-button');
    await page.getByRole('option').first().waitFor();
    const names = await page.getByRole('option').evaluateAll((all) => all.map((one) => one.getAttribute('aria-label')));
    const models = ['chat', 'cutting', 'embed'].flatMap((name) => [name, `${name}:latest`]);
    assert.deepEqual(names.sort(), models.map((name) => `Select ${name} model`));
    await end(page, 'models');
  });

  test('turns, an edited message and another reply take what was said from the cache', async (t) => {
    const page = await openChat(chromium, webUi, openai);
    await send(page, `${prose.slice(0, 1000)}\n\nWho has let Netherfield Park?`);
    assert.ok((await replied(page, 1)).length > 10);
    await send(page, 'What is the capital of France?');
    assert.match(await replied(page, 2), /Paris/);
    await shoot(page, 'two-turns');
    await edit(page, 'What is the capital of Italy?');
    await page.getByText('2/2').first().waitFor();
    assert.match(await replied(page, 2), /Rome/);
    await regenerate(page);
    await until('another reply is asked for', () => asked(openai).length === 4);
    assert.match(await replied(page, 2), /Rome/);

    const [first, ...others] = asked(openai);
    assert.ok(first.reply.split('data: ').length > 10, 'the reply is streamed');
    assert.deepEqual(others.map(({ body }) => body.messages.map(({ role }) => role).join()), Array(3).fill('user,assistant,user'));
    assert.deepEqual(others.map(({ body }) => /France|Italy/.exec(body.messages.at(-1).content)[0]), ['France', 'Italy', 'Italy']);
    const cached = others.map(({ timings }) => timings.cache_n);
    t.diagnostic(`${first.timings.total} tokens, then cached: ${cached}`);
    // The last token of a reply is sampled but not yet computed.
    for (const n of cached) assert.ok(n >= first.timings.total - 2, `${n} of ${first.timings.total}`);
    await end(page, 'edited');
  });

  for (const [api, model] of [['openai', openai], ['ollama', ollama]]) {
    test(`${api}: a reply that is stopped stops at the server, and what came stays`, async (t) => {
      const from = asked(model).length;
      const page = await openChat(chromium, webUi, model, { max_tokens: 4000 });
      await send(page, 'Write a long story about the sea.');
      await page.waitForFunction(() => /\w+ \w+ \w+/.test(document.querySelector('.chat-assistant')?.innerText));
      await page.getByRole('button', { name: 'Stop' }).click();
      const clicked = performance.now();
      await server.client.idle(10);
      t.diagnostic(`idle after ${Math.round(performance.now() - clicked)} ms`);
      assert.match(await replied(page, 1), /\w+ \w+ \w+/);
      assert.deepEqual(asked(model).slice(from).map(({ ended }) => ended), ['the client left']);
      await end(page, `stopped-${api}`);
    });

    test(`${api}: an image that the model cannot see is named as left out`, async () => {
      const from = asked(model).length;
      const page = await openChat(chromium, webUi, model);
      await attach(page, red);
      await send(page, 'What do you see?');
      assert.ok((await replied(page, 1)).length > 10);
      const [exchange] = asked(model).slice(from);
      assert.match(JSON.stringify(exchange.body.messages), /iVBORw0KGgo/);
      assert.equal(exchange.status, 200);
      assert.match(exchange.headers['x-hearth-left-out'], /^messages\[0\]/);
      await end(page, `image-${api}`);
    });
  }

  test("Ollama's num_ctx and keep_alive are accepted, and a num_ctx above the window is answered with the window", async () => {
    const from = asked(ollama).length;
    for (const [num_ctx, keep_alive] of [[4096, '5m'], [16384, '-1']]) {
      const page = await openChat(chromium, webUi, ollama, { num_ctx, keep_alive });
      await send(page, 'What is the capital of France?');
      assert.match(await replied(page, 1), /Paris/);
      await end(page, `num_ctx-${num_ctx}`);
    }
    const [small, large] = asked(ollama).slice(from);
    assert.deepEqual([small.body.options.num_ctx, small.body.keep_alive], [4096, '5m']);
    assert.deepEqual([large.body.options.num_ctx, large.body.keep_alive], [16384, -1]);
    assert.deepEqual([small, large].map(({ headers }) => headers['x-hearth-context-window']), [undefined, '8192']);
  });

  // The engine and model for embeddings, as the page for administrators sets them.
  const embedWith = (engine, model) => webUi.ask('/retrieval/embedding/update', { RAG_EMBEDDING_ENGINE: engine, RAG_EMBEDDING_MODEL: model });
  const sources = (page) => page.getByRole('button', { name: /Toggle \d+ sources?/ });

  test('a document of 600 KB: all requests are answered, and a reply has sources', { timeout: 1_200_000 }, async (t) => {
    await embedWith('openai', 'embed');
    const page = await openChat(chromium, webUi, openai);
    const from = recorder.exchanges.length;
    const began = performance.now();
    await attach(page, documentOf(600_000), 900);
    const seconds = (performance.now() - began) / 1000;
    const pieces = recorder.of('/v1/embeddings', from);
    const times = pieces.flatMap((one) => [[one.began, 1], [one.began + one.took, -1]]).sort(([a], [b]) => a - b);
    let now = 0, most = 0;
    for (const [, step] of times) most = Math.max(most, now += step);
    t.diagnostic(`${pieces.length} requests, ${most} of them at once, ${seconds.toFixed(0)} s`);
    assert.ok(pieces.length > 600, `${pieces.length} requests`);
    assert.ok(most > 500, `${most} at once`);
    assert.deepEqual([...new Set(pieces.map(({ status, ended }) => `${status} ${ended}`))], ['200 whole']);

    await send(page, question);
    assert.ok((await replied(page, 1)).length > 0);
    assert.equal(await sources(page).count(), 1);
    assert.match(JSON.stringify(asked(openai).at(-1).body.messages), /<source .*story\.txt/);
    // What its index finds among so many paragraphs that are almost alike is its own affair; the vectors are hearth's.
    const [wanted, ...vectors] = [recorder.of('/v1/embeddings', from).at(-1), ...pieces].map(({ reply }) => JSON.parse(reply).data[0].embedding);
    const near = vectors.map((vector) => vector.reduce((sum, x, i) => sum + x * wanted[i], 0));
    assert.ok(pieces[near.indexOf(Math.max(...near))].body.input[0].includes(secret));
    await end(page, 'document');
  });

  const engines = [
    ['openai', 'embed', '/v1/embeddings', 400],
    ['openai', 'cutting', '/v1/embeddings', 200],
    ['ollama', 'embed:latest', '/api/embed', 200],
  ];
  for (const [engine, model, path, status] of engines) {
    test(`a question of more than 512 tokens about a document, by ${engine} and ${model}: ${status === 200 ? 'its end is cut off' : 'no sources'}`, async () => {
      await embedWith(engine, model);
      const page = await openChat(chromium, webUi, openai);
      const from = recorder.exchanges.length;
      await attach(page, documentOf(4000));
      await send(page, question);
      await replied(page, 1);
      assert.ok(recorder.of(path, from).every((one) => one.status === 200));
      assert.ok(JSON.stringify(asked(openai).at(-1).body.messages).includes(secret));
      await sources(page).waitFor();

      await send(page, `${question} ${prose.slice(0, 3000)}`);
      await replied(page, 2);
      assert.equal(recorder.of(path, from).at(-1).status, status);
      assert.equal(await sources(page).count(), status === 200 ? 2 : 1);
      assert.equal(await page.getByText('No sources found').count(), status === 200 ? 0 : 1);
      assert.equal(asked(openai).at(-1).status, 200);
      await end(page, `question-${engine}-${status}`);
    });
  }

  test('its own tools, which it sends by default, are computed once', { timeout: 900_000 }, async (t) => {
    const chats = [];
    for (const country of ['France', 'Italy']) {
      const from = asked(openai).length;
      const page = await openChat(chromium, webUi, openai, { function_calling: 'native' });
      await send(page, `What is the capital of ${country}?`);
      await replied(page, 1, 600);
      const exchanges = asked(openai).slice(from);
      assert.deepEqual([...new Set(exchanges.map(({ status, ended }) => `${status} ${ended}`))], ['200 whole']);
      chats.push({ tools: exchanges[0].body.tools.length, reply: await lastReply(page), ...exchanges[0].timings });
      await end(page, `tools-${country}`);
    }
    for (const { tools, prompt_n, cache_n, reply } of chats) t.diagnostic(`${tools} tools, ${prompt_n} tokens computed, ${cache_n} cached: ${reply}`);
    assert.ok(chats.every(({ tools }) => tools > 20));
    assert.ok(chats[1].prompt_n < 200);
  });
});

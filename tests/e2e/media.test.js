// Images, sounds and videos as official clients send them: what they cost, what a later turn and a restart cost, and what is
// refused. The projector has random weights: replies say nothing of the image, but depend on it.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { Ollama } from 'ollama';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { mp4, png, wav, withFfmpeg } from './lib/media.js';
import { build, demo, projectorFor } from './lib/models.js';
import { run, serve, shim, temporaryFolder } from './lib/server.js';
import { saved } from './lib/store.js';

// Sanitizers do not run under a service's filters.
const tool = join(build, 'bin', 'hearth-under-unit');
const underUnit = {
  command: [tool, fileURLToPath(new URL('../../packaging/hearth.service.in', import.meta.url))],
  missing: !existsSync(tool) && 'sanitizers need more calls than the service may make',
};

const start = ({ t, kind = 'llava', set, models, env, under } = {}) => serve({
  t, set, env, under, models: { context_window: 2048, n_seq_max: 2, cache_min_tokens: 0, mmproj: projectorFor(demo, kind), ...models },
});
const encoded = (server) => server.client.metric('hearth_media_encoded_total');

describe('an image', () => {
  let server;
  before(async () => { server = await start(); });
  after(() => server.stop());

  const url = (seed) => `data:image/png;base64,${png(seed)}`;
  // What a second turn computes, and that the first one's image is encoded once.
  async function twice(ask) {
    const before = await encoded(server);
    const first = await ask([]);
    assert.ok(first.prompt > 16, `${first.prompt} tokens of the prompt`);
    assert.equal(await encoded(server), before + 1);
    const second = await ask([first.text]);
    assert.equal(await encoded(server), before + 1, 'a turn later it is not encoded again');
    assert.ok(second.cached >= first.prompt - 2, `${second.cached} of ${first.prompt} tokens are cached`);
  }

  test('OpenAI, chat completions', () => {
    const openai = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
    return twice(async (replies) => {
      const { choices: [{ message }], usage } = await openai.chat.completions.create({
        model: 'demo', temperature: 0, max_tokens: 8,
        messages: [{ role: 'user', content: [{ type: 'text', text: 'What is this?' }, { type: 'image_url', image_url: { url: url(1), detail: 'high' } }] },
          ...replies.flatMap((content) => [{ role: 'assistant', content }, { role: 'user', content: 'Why?' }])],
      });
      return { text: message.content, prompt: usage.prompt_tokens, cached: usage.prompt_tokens_details.cached_tokens };
    });
  });

  test('OpenAI, responses', () => {
    const openai = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
    return twice(async (replies) => {
      const { output_text, usage } = await openai.responses.create({
        model: 'demo', temperature: 0, max_output_tokens: 8,
        input: [{ role: 'user', content: [{ type: 'input_image', image_url: url(2), detail: 'auto' }, { type: 'input_text', text: 'What is this?' }] },
          ...replies.flatMap((content) => [{ role: 'assistant', content }, { role: 'user', content: 'Why?' }])],
      });
      return { text: output_text, prompt: usage.input_tokens, cached: usage.input_tokens_details.cached_tokens };
    });
  });

  test('Anthropic, messages', () => {
    const anthropic = new Anthropic({ baseURL: server.url, apiKey: 'none', maxRetries: 0 });
    return twice(async (replies) => {
      const { content: [{ text }], usage } = await anthropic.messages.create({
        model: 'demo', temperature: 0, max_tokens: 8,
        messages: [{ role: 'user', content: [{ type: 'image', source: { type: 'base64', media_type: 'image/png', data: png(3) } }, { type: 'text', text: 'What is this?' }] },
          ...replies.flatMap((content) => [{ role: 'assistant', content }, { role: 'user', content: 'Why?' }])],
      });
      return { text, prompt: usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens, cached: usage.cache_read_input_tokens };
    });
  });

  test('Ollama, chat', () => {
    const ollama = new Ollama({ host: server.url });
    return twice(async (replies) => {
      const { message, prompt_eval_count } = await ollama.chat({
        model: 'demo', options: { temperature: 0, num_predict: 8 },
        messages: [{ role: 'user', content: 'What is this?', images: [png(4)] },
          ...replies.flatMap((content) => [{ role: 'assistant', content }, { role: 'user', content: 'Why?' }])],
      });
      const [{ cached_tokens }] = (await server.client.get('/slots')).json.filter(({ cached_tokens: n }) => n > 0).slice(-1);
      return { text: message.content, prompt: prompt_eval_count, cached: cached_tokens };
    });
  });

  test('six agents that look at one image encode it once', async () => {
    const before = await encoded(server);
    const ask = (i) => server.client.post('/v1/chat/completions', {
      temperature: 0, max_tokens: 4,
      messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: url(5) } }, { type: 'text', text: `Question ${i}?` }] }],
    });
    const answers = await Promise.all(Array.from({ length: 6 }, (_, i) => ask(i)));
    for (const { status, text } of answers) assert.equal(status, 200, text);
    assert.equal(await encoded(server), before + 1);
  });

  test('/apply-template and /cache/lookup take images', async () => {
    const messages = [{ role: 'user', content: [{ type: 'text', text: 'Look:' }, { type: 'image_url', image_url: { url: url(10) } }] }];
    const { json: { prompt } } = await server.client.post('/apply-template', { messages });
    assert.match(prompt, /Look:<__media__>/);
    const { json: unknown } = await server.client.post('/cache/lookup', { messages });
    const before = await encoded(server);
    await server.client.post('/v1/chat/completions', { messages, max_tokens: 4 });
    const { json: known } = await server.client.post('/cache/lookup', { messages });
    assert.equal(await encoded(server), before + 1);
    assert.ok(unknown.tokens < 10 && known.tokens > 20, JSON.stringify([unknown, known]));
  });

  test('/v1/models, /props and /api/show say that the model takes images', async () => {
    const { json: models } = await server.client.get('/v1/models');
    assert.deepEqual(models.data[0].modalities.input, ['text', 'image']);
    assert.deepEqual((await server.client.get('/props')).json.modalities, { vision: true, video: false, audio: false });
    assert.ok((await server.client.post('/api/show', { model: 'demo' })).json.capabilities.includes('vision'));
  });

  test('what cannot be read is refused with its place', async () => {
    const rows = [['http://127.0.0.1:1/a.png', 'allow them with models.*.media_urls'], ['file:///etc/passwd', 'models.*.media_path'], ['data:image/png;base64,aGVsbG8=', 'unknown type'],
      [`data:image/png;base64,${png(6).slice(0, 200)}`, 'PNG'], ['data:image/png;base64,*', 'is not base64']];
    for (const [address, says] of rows) {
      const { status, json } = await server.client.post('/v1/chat/completions', {
        messages: [{ role: 'user', content: [{ type: 'text', text: 'Hi' }, { type: 'image_url', image_url: { url: address } }] }],
      });
      assert.equal(status, 400, address);
      assert.equal(json.error.param, 'messages[0].content[1].image_url.url');
      assert.ok(json.error.message.includes(says), json.error.message);
    }
  });

  test('Messages names the place as its own body has it, a result of a tool too', async () => {
    const source = { type: 'base64', media_type: 'image/png', data: 'aGVsbG8=' };
    const image = { type: 'image', source };
    const use = { role: 'assistant', content: [{ type: 'tool_use', id: 'a', name: 'look', input: {} }] };
    const rows = [
      [[{ role: 'user', content: [{ type: 'text', text: 'Hi' }, image] }], 'messages.0.content.1.source.data'],
      [[{ role: 'user', content: 'Hi' }, use, { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'a', content: [{ type: 'text', text: 'x' }, image] }] }], 'messages.2.content.0.content.1.source.data'],
    ];
    for (const [messages, path] of rows) {
      const { status, json } = await server.client.post('/v1/messages', { max_tokens: 1, system: 'Be short', messages });
      assert.equal(status, 400);
      assert.ok(json.error.message.replace(/\[(\d+)\]/g, '.$1').includes(path), json.error.message);
    }
  });
});

for (const signal of ['SIGTERM', 'SIGKILL']) test(`a follow-up after ${signal} neither encodes the image nor computes its tokens`, async (t) => {
  const disk = temporaryFolder();
  const options = { t, set: { 'cache.tiers.disk.path': disk, 'cache.tiers.disk.quota_mb': 256 } };
  const ask = (server, messages) => server.client.post('/v1/chat/completions', { temperature: 0, max_tokens: 8, messages });
  const question = { role: 'user', content: [{ type: 'image_url', image_url: { url: `data:image/png;base64,${png(7)}` } }, { type: 'text', text: 'What is this?' }] };
  let server = await start(options);
  const { json: first } = await ask(server, [question]);
  await saved(server);
  server.signal(signal);
  await server.ended;
  server = await start(options);
  const { json: second } = await ask(server, [question, first.choices[0].message, { role: 'user', content: 'Why?' }]);
  assert.equal(await encoded(server), 0);
  assert.ok(second.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens - 2, JSON.stringify(second.usage));
  await server.stop();
});

test('after a restart an image behind another text is computed again, and not encoded again', async (t) => {
  const options = { t, set: { 'cache.tiers.disk.path': temporaryFolder(), 'cache.tiers.disk.quota_mb': 256 } };
  const image = { type: 'image_url', image_url: { url: `data:image/png;base64,${png(7)}` } };
  const about = (server, text, more) => server.client.post('/v1/chat/completions', {
    temperature: 0, max_tokens: 8, messages: [{ role: 'user', content: [{ type: 'text', text }, image] }], ...more,
  });
  let server = await start(options);
  const { json: first } = await about(server, 'What is this?');
  await server.stop();
  server = await start(options);
  const { json: cold } = await about(server, 'Who painted it?');
  assert.equal(await encoded(server), 0);
  assert.equal(await server.client.metric('hearth_media_encodings_fetched_total'), 1);
  await server.says(/imc-media-cache: encoding-fetched bytes=\d+/);
  assert.ok(cold.usage.prompt_tokens_details.cached_tokens < first.usage.prompt_tokens / 2, JSON.stringify(cold.usage));
  const { json: again } = await about(server, 'Who painted it?', { cache_prompt: false });
  assert.equal(await encoded(server), 1);
  assert.equal(again.choices[0].message.content, cold.choices[0].message.content);
  await server.stop();
});

test('a deterministic model takes no encoding of other threads', async (t) => {
  const options = { t, set: { 'cache.tiers.disk.path': temporaryFolder(), 'cache.tiers.disk.quota_mb': 256 } };
  const image = { type: 'image_url', image_url: { url: `data:image/png;base64,${png(7)}` } };
  const counts = [];
  for (const [i, threads] of [1, 2, 1].entries()) {
    const server = await start({ ...options, models: { deterministic: true, threads } });
    await server.client.post('/v1/chat/completions', { temperature: 0, max_tokens: 2, messages: [{ role: 'user', content: [{ type: 'text', text: `Question ${i}` }, image] }] });
    counts.push(await encoded(server));
    await server.stop();
  }
  assert.deepEqual(counts, [1, 1, 0]);
});

test('a sound, and an image beside it that the model does not take', async (t) => {
  const server = await start({ t, kind: 'audio' });
  const openai = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
  const ask = (content) => openai.chat.completions.create({ model: 'demo', temperature: 0, max_tokens: 8, messages: [{ role: 'user', content }] });
  const sound = { type: 'input_audio', input_audio: { data: wav(), format: 'wav' } };
  const image = { type: 'image_url', image_url: { url: `data:image/png;base64,${png(8)}` } };
  const one = await ask([sound, { type: 'text', text: 'What is said?' }]);
  assert.equal(await encoded(server), 1);
  await ask([sound, image, { type: 'text', text: 'What is said?' }]);
  assert.equal(await encoded(server), 1);
  assert.ok(one.usage.prompt_tokens > 10);
  await assert.rejects(ask([{ type: 'input_audio', input_audio: { data: 'AAAA', format: 'wav' } }]),
    (error) => error.status === 400 && error.param === 'messages[0].content[0].input_audio.data');
  await server.stop();
});

test('hearth chat attaches files: /image, and a pasted path', async () => {
  const folder = join(temporaryFolder(), 'my pictures');
  mkdirSync(folder);
  const path = join(folder, 'a.png');
  writeFileSync(path, Buffer.from(png(9), 'base64'));
  const chat = (input, ...more) => run(['chat', '--set', 'models.demo.sampling.temperature=0', '--log-level', 'info', ...more], { input });
  const projector = ['--mmproj', projectorFor(demo, 'llava')];
  for (const lines of [`/image ${path.replaceAll(' ', '\\ ')}\nWhat is this?\n`, `'${path}'\nWhat is this?\nAnd why?\n`]) {
    const { code, stderr } = await chat(lines, ...projector, '--set', `cache.tiers.disk.path=${temporaryFolder()}`);
    assert.equal(code, 0, stderr);
    assert.equal(stderr.match(/encoding-image-chunk/g)?.length, 1, stderr);
  }
  const { code, stderr } = await chat(`/image ${join(folder, 'b.png')}\n`, ...projector);
  assert.equal(code, 1);
  assert.match(stderr, /b\.png: No such file/);
  const plain = await chat(`/image ${path}\n`);
  assert.equal(plain.code, 1);
  assert.match(plain.stderr, /text only: images and sounds need its projector, --mmproj FILE/);
});

const pdf = (words) => Buffer.from('%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n'
  + '3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 100]/Contents 4 0 R/Resources<</Font<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>>>endobj\n'
  + `4 0 obj<</Length ${words.length + 28}>>stream\nBT /F1 12 Tf 20 50 Td (${words}) Tj ET\nendstream endobj\ntrailer<</Root 1 0 R>>\n`).toString('base64');

test('a PDF document is its text, for a model that takes text only as well', async (t) => {
  const server = await serve({ t, models: { context_window: 1024 } });
  const anthropic = new Anthropic({ baseURL: server.url, apiKey: 'none', maxRetries: 0 });
  const document = (data) => ({ type: 'document', source: { type: 'base64', media_type: 'application/pdf', data } });
  const ask = (block) => anthropic.messages.create({
    model: 'demo', max_tokens: 20, temperature: 0, system: 'You are a helpful assistant.',
    messages: [{ role: 'user', content: [block, { type: 'text', text: 'What is the secret code?' }] }],
  });
  const { json: { prompt } } = await server.client.post('/apply-template', {
    messages: [{ role: 'user', content: [{ type: 'file', file: { file_data: `data:application/pdf;base64,${pdf('The secret code is QX7B2.')}` } }] }],
  });
  assert.match(prompt, /The secret code is QX7B2\./);
  const { usage } = await ask(document(pdf('The secret code is QX7B2.')));
  assert.ok(usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens > 20);
  await assert.rejects(ask(document(Buffer.from('%PDF-1.4\njunk').toString('base64'))), (error) => error.status === 400
    && /pdftotext: it is damaged/.test(error.message));
  await server.stop();
});

test('a video is frames of it, encoded once', async (t) => {
  const server = await start({ t, env: withFfmpeg });
  const part = (data, type = 'input_video') => (type === 'input_video' ? { type, input_video: { data } } : { type, video_url: { url: `data:video/mp4;base64,${data}` } });
  const ask = (...content) => server.client.post('/v1/chat/completions', { temperature: 0, max_tokens: 8, messages: [{ role: 'user', content }] });
  const question = { type: 'text', text: 'What happens?' };
  const { json: first } = await ask(part(mp4(1)), question);
  assert.equal(await encoded(server), 4); // frames of one second
  const { json: again } = await ask(part(mp4(1), 'video_url'), question, { type: 'text', text: 'And why?' });
  assert.equal(await encoded(server), 4);
  assert.ok(again.usage.prompt_tokens_details.cached_tokens > first.usage.prompt_tokens - 16, JSON.stringify(again.usage));
  for (const type of ['webm', 'mkv', 'avi', 'mov']) {
    const { status, text } = await ask(part(mp4(2, { type })), question);
    assert.equal(status, 200, `${type}: ${text}`);
  }
  const before = await encoded(server);
  const { json: long } = await ask(part(mp4(3, { seconds: 20 })), question); // of 80 frames every second one
  assert.equal(await encoded(server), before + 40);
  assert.ok(long.usage.prompt_tokens > first.usage.prompt_tokens);
  assert.equal((await server.client.get('/props')).json.modalities.video, true);
  const { status, json: { error } } = await ask(part(Buffer.from(mp4(4), 'base64').subarray(0, 400).toString('base64')), question);
  assert.equal(status, 400);
  assert.equal(error.param, 'messages[0].content[0].input_video.data');
  assert.match(error.message, /cannot be read by ffmpeg/);
  await server.stop();
});

test('without ffmpeg a video is refused, and the error names what is missing', async (t) => {
  const server = await start({ t, env: { PATH: '/nowhere' } });
  const { status, json: { error } } = await server.client.post('/v1/chat/completions', {
    messages: [{ role: 'user', content: [{ type: 'input_video', input_video: { data: mp4(1) } }] }],
  });
  assert.equal(status, 400);
  assert.match(error.message, /'messages\[0\]\.content\[0\]\.input_video\.data' needs ffmpeg, which is not installed here/);
  await server.stop();
});

// What becomes of a PDF document, and of a video, whose answer is given.
async function readBoth(server) {
  const { json: { prompt } } = await server.client.post('/apply-template', {
    messages: [{ role: 'user', content: [{ type: 'file', file: { file_data: `data:application/pdf;base64,${pdf('The secret code is QX7B2.')}` } }] }],
  });
  const video = await server.client.post('/v1/chat/completions', {
    max_tokens: 2, messages: [{ role: 'user', content: [{ type: 'input_video', input_video: { data: mp4(1) } }] }],
  });
  return { prompt, video, says: (await server.client.get('/props')).json.modalities.video };
}

test('where the kernel cannot confine the programs they are not run, unless the configuration says so', async (t) => {
  const env = { ...withFfmpeg, LD_PRELOAD: shim('no_landlock') };
  let server = await start({ t, env });
  let { prompt, video, says } = await readBoth(server);
  assert.doesNotMatch(prompt, /QX7B2/);
  await server.says(/a document cannot be read reason="needs pdftotext, which is not run here: this system has no Landlock/);
  assert.equal(video.status, 400);
  assert.match(video.json.error.message, /no Landlock to confine it: see models\.\*\.media_unconfined/);
  assert.equal(says, false);
  await server.stop();
  server = await start({ t, env, models: { media_unconfined: true } });
  ({ prompt, video, says } = await readBoth(server));
  assert.match(prompt, /The secret code is QX7B2\./);
  assert.equal(video.status, 200, video.text);
  assert.equal(says, true);
  await server.stop();
});

test('the filters of the service that hearth installs let it run, and the programs be confined', { skip: underUnit.missing }, async (t) => {
  const server = await start({ t, env: withFfmpeg, under: underUnit.command });
  const { prompt, video, says } = await readBoth(server);
  assert.match(prompt, /The secret code is QX7B2\./);
  assert.equal(video.status, 200, video.text);
  assert.equal(says, true);
  await server.stop();
});

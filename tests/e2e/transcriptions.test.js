// POST /v1/audio/transcriptions as OpenAI's client sends it: formats, streams, what a sound costs that was there before,
// and what is refused. The projector has random weights: a reply says nothing of the sound, but depends on it.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import OpenAI, { toFile } from 'openai';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { png, wav } from './lib/media.js';
import { demo, projectorFor, smallModel } from './lib/models.js';
import { serve, temporaryFolder } from './lib/server.js';

const route = '/v1/audio/transcriptions';
const bytes = (hertz) => Buffer.from(wav(hertz), 'base64');
const sound = (hertz) => toFile(bytes(hertz), 'a.wav');
const encoded = (server) => server.client.metric('hearth_media_encoded_total');

// A form as browsers and Node write it.
async function post(client, path, fields, headers = {}) {
  const form = new FormData();
  for (const [name, value] of fields) form.append(name, Buffer.isBuffer(value) ? new File([value], 'a.wav') : value);
  const request = new Request('http://localhost', { method: 'POST', body: form });
  return client.fetch('POST', path, {
    body: Buffer.from(await request.arrayBuffer()), headers: { 'Content-Type': request.headers.get('content-type'), ...headers },
  });
}

describe('transcriptions', () => {
  let server;
  let openai;
  before(async () => {
    const models = {
      demo: { path: demo, context_window: 2048, n_seq_max: 2, cache_min_tokens: 0, idle_conversations: 'stay', mmproj: projectorFor(demo, 'audio') },
      deaf: { path: smallModel('llama'), context_window: 256 },
    };
    const config = join(temporaryFolder(), 'hearth.yaml');
    const lines = Object.entries(models).map(([name, value]) => `  ${name}: ${JSON.stringify({ threads: 1, ...value })}\n`);
    writeFileSync(config, `server: {max_body_bytes: 200000, any_model_name: false}\nmodels:\n${lines.join('')}`);
    server = await serve({ args: ['--config', config] });
    openai = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
  });
  after(() => server.stop());

  const ask = async (hertz, more) => openai.audio.transcriptions.create({ file: await sound(hertz), model: 'demo', max_tokens: 16, ...more });

  test('a sound is encoded once, and its tokens are computed once', async () => {
    const first = await ask(300);
    assert.ok(first.text.length > 0);
    assert.equal(await encoded(server), 1);
    const { usage } = first;
    assert.equal(usage.type, 'tokens');
    assert.equal(usage.total_tokens, usage.input_tokens + usage.output_tokens);
    assert.equal(usage.input_tokens, usage.input_token_details.audio_tokens + usage.input_token_details.text_tokens);
    assert.ok(usage.input_token_details.audio_tokens > 5 && usage.input_token_details.text_tokens > 5, JSON.stringify(usage));
    const second = await ask(300);
    assert.equal(await encoded(server), 1);
    assert.equal(second.text, first.text);
    assert.ok(second.usage.input_tokens_details.cached_tokens >= usage.input_tokens - 2, JSON.stringify(second.usage));
  });

  test('a chat that asks the same shares them', async () => {
    const { usage } = await ask(350);
    const before = await encoded(server);
    const chat = await openai.chat.completions.create({ model: 'demo', max_tokens: 4, messages: [{ role: 'user', content: [
      { type: 'text', text: 'Transcribe audio to text' }, { type: 'input_audio', input_audio: { data: wav(350), format: 'wav' } }] }] });
    assert.equal(chat.usage.prompt_tokens, usage.input_tokens);
    assert.ok(chat.usage.prompt_tokens_details.cached_tokens >= usage.input_tokens - 2, JSON.stringify(chat.usage));
    assert.equal(await encoded(server), before);
  });

  test('text, verbose_json', async () => {
    const { text } = await ask(300);
    assert.equal(await ask(300, { response_format: 'text' }), `${text}\n`);
    const verbose = await ask(300, { response_format: 'verbose_json', timestamp_granularities: ['segment'] });
    assert.deepEqual(verbose, { task: 'transcribe', language: 'unknown', duration: 0.5, text, usage: { type: 'duration', seconds: 0.5 } });
    const english = await ask(300, { response_format: 'verbose_json', language: 'en' });
    assert.equal(english.language, 'en');
  });

  test('a stream', async () => {
    const whole = await ask(300);
    const events = [];
    for await (const event of await ask(300, { stream: true })) events.push(event);
    const last = events.pop();
    assert.ok(events.length > 1);
    assert.ok(events.every(({ type }) => type === 'transcript.text.delta'));
    assert.equal(events.map(({ delta }) => delta).join(''), whole.text);
    assert.deepEqual([last.type, last.text, last.usage.input_tokens], ['transcript.text.done', whole.text, whole.usage.input_tokens]);
  });

  test('language and prompt become part of what is asked', async () => {
    const tokens = async (more) => (await ask(300, more)).usage.input_tokens;
    const plain = await tokens({});
    assert.ok(await tokens({ language: 'de' }) > plain);
    assert.ok(await tokens({ prompt: 'Ottilie and Heinrich, who live in a small town, are talking' }) > plain);
  });

  test('what cannot be done is refused with the name of its field', async () => {
    const file = ['file', bytes(300)];
    const rows = [
      [[['model', 'demo']], 400, 'file', /is missing/],
      [[['file', Buffer.from('hello')]], 400, 'file', /is no sound: WAV, MP3 and FLAC are/],
      [[['file', 'a.wav']], 400, 'file', /is no sound/],
      [[['file', Buffer.from(png(1), 'base64')]], 400, 'file', /a PNG is no sound/],
      [[['file', bytes(300).subarray(0, 45)]], 400, 'file', /empty|damaged|cut off/],
      [[file, ['model', 'deaf']], 400, 'model', /takes no sound.*models\.\*\.mmproj/],
      [[file, ['model', 'nobody']], 404, 'model', /nobody/],
      [[file, file], 400, 'file', /twice/],
      [[file, ['response_format', 'srt']], 400, 'response_format', /time stamps/],
      [[file, ['timestamp_granularities[]', 'word']], 400, 'timestamp_granularities[]', /time stamps/],
      [[file, ['temperature', 'hot']], 400, 'temperature', /number/],
      [[file, ['prompt', 'word '.repeat(3000)]], 400, 'prompt', /exceeds the available context size/],
    ];
    for (const path of [route, '/audio/transcriptions']) {
      for (const [fields, status, param, says] of rows) {
        const { status: got, json } = await post(server.client, path, fields);
        assert.deepEqual([got, json.error.param], [status, param], JSON.stringify(json));
        assert.match(json.error.message, says);
      }
    }
    const long = await post(server.client, route, [['file', Buffer.alloc(200001)]]);
    assert.equal(long.status, 413);
  });

  test('bodies that are no forms', async () => {
    const form = 'multipart/form-data; boundary=b';
    for (const [type, body, says] of [
      ['application/json', '{"file": "a.wav"}', /multipart\/form-data/], ['multipart/form-data', '--b--', /boundary/],
      [form, '', /boundary/], [form, '--b\r\n', /part 1 of the form/],
      [form, '--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nRIFF', /'file' breaks off/]]) {
      const reply = await server.client.fetch('POST', route, { body, headers: { 'Content-Type': type } });
      assert.equal(reply.status, 400, reply.text);
      assert.match(reply.json.error.message, says);
    }
    assert.equal((await server.client.get(route)).status, 405);
  });

  test('a page of this machine may ask, one of another site may not', async () => {
    const fields = [['file', bytes(300)], ['max_tokens', '4']];
    const near = await post(server.client, route, fields, { Origin: 'http://localhost:3000' });
    assert.deepEqual([near.status, near.headers['access-control-allow-origin']], [200, 'http://localhost:3000']);
    for (const Origin of ['https://evil.example', 'null']) {
      const far = await post(server.client, route, fields, { Origin });
      assert.deepEqual([far.status, far.json.error.code], [403, 'origin_not_allowed']);
    }
    const untyped = await post(server.client, route, fields, { Origin: 'http://localhost:3000', 'Content-Type': 'text/plain' });
    assert.equal(untyped.status, 415);
  });
});

// Images, sounds and videos beside llama-server of the same llama.cpp, with the same model and projector: prompts have as many
// tokens, and replies the same tokens with the same probabilities. Weights are random, so that two tokens may be as
// likely as each other but for rounding: replies may part there.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { mp4, png, wav, withFfmpeg } from './lib/media.js';
import { chmodSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { demo, projectorFor, smallModel } from './lib/models.js';
import { peer } from './lib/peer.js';
import { serve, temporaryFolder } from './lib/server.js';

const image = (seed, ...size) => ({ type: 'image_url', image_url: { url: `data:image/png;base64,${png(seed, ...size)}` } });
// At the projector's own rate: servers resample in ways of their own.
const sound = (hertz) => ({ type: 'input_audio', input_audio: { data: wav(hertz, 16000), format: 'wav' } });
const text = (words) => ({ type: 'text', text: words });
const user = (...content) => ({ role: 'user', content });

const conversations = (medium) => [
  [user(medium(1), text('What is this?'))],
  [user(text('Is this'), medium(2), text('or this'), medium(3), text('a river?'))],
  [{ role: 'system', content: 'Be brief.' }, user(text('Hello.')), { role: 'assistant', content: 'Hello!' }, user(text('Look:'), medium(4, 84, 140))],
  [user(medium(5)), { role: 'assistant', content: 'A town.' }, user(text('And why?'))],
];
// Six seconds: two times stand between the frames.
const video = (seed) => ({ type: 'input_video', input_video: { data: mp4(seed, { seconds: 6 }) } });
const sounds = conversations((seed) => sound(200 * seed));

const kinds = [
  { name: 'llava', model: () => demo, projector: 'llava', asked: conversations(image) },
  { name: 'M-RoPE', model: () => smallModel('qwen2vl', { seed: 11 }), projector: 'qwen2vl', asked: conversations(image) },
  { name: 'images that see themselves', model: () => smallModel('gemma3', { seed: 11 }), projector: 'gemma3', asked: conversations(image) },
  { name: 'a hybrid with M-RoPE', model: () => smallModel('qwen35', { seed: 11 }), projector: 'qwen2vl', asked: conversations(image) },
  { name: 'video', model: () => demo, projector: 'llava', asked: conversations(video).slice(0, 1) },
  { name: 'video, of which frames are merged', model: () => smallModel('qwen2vl', { seed: 13 }), projector: 'qwen2vl', asked: conversations(video) },
  { name: 'sound', model: () => demo, projector: 'audio', asked: sounds },
];

// llama-server asks ffprobe, which the package does not bring, for what the test knows of its videos.
function withFfprobe() {
  const folder = temporaryFolder();
  const file = join(folder, 'ffprobe');
  writeFileSync(file, '#!/bin/sh\ncat > /dev/null\nprintf "width=56\\nheight=56\\nr_frame_rate=4/1\\nduration=6.0\\nnb_frames=24\\n"\n');
  chmodSync(file, 0o700);
  return { PATH: `${folder}:${withFfmpeg.PATH}` };
}

// A form with a sound, and the answer of a server to it.
async function transcribe(client, hertz, fields) {
  const form = new FormData();
  form.append('file', new File([Buffer.from(wav(hertz, 16000), 'base64')], 'a.wav'));
  for (const [name, value] of Object.entries({ temperature: '0', max_tokens: '8', ...fields })) form.append(name, value);
  const request = new Request('http://localhost', { method: 'POST', body: form });
  const reply = await client.fetch('POST', '/v1/audio/transcriptions', {
    body: Buffer.from(await request.arrayBuffer()), headers: { 'Content-Type': request.headers.get('content-type') },
  });
  assert.equal(reply.status, 200, reply.text);
  return reply.json;
}

// llama.cpp asks for a transcription in its own way where a template is LFM2's, which it knows by two words in it.
const chatml = '{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}';
const asking = { 'its own template': null, 'a template like LFM2\'s': `{# <|tool_list_start|><|tool_list_end|> #}${chatml}` };

for (const [name, template] of Object.entries(asking)) {
  test(`transcriptions with ${name}`, async (t) => {
    const mmproj = projectorFor(demo, 'audio');
    const file = join(temporaryFolder(), 'template.jinja');
    if (template) writeFileSync(file, template);
    const models = { path: demo, mmproj, context_window: 2048, n_seq_max: 1, cache_min_tokens: 0, cache_type_k: 'f32', cache_type_v: 'f32',
      flash_attention: 'off', ...(template && { jinja_file: file }) };
    const hearth = await serve({ t, models });
    const llama = await peer(t, demo, ['--mmproj', mmproj, '-c', '2048', '-np', '1', '-ub', '2048', '-fa', 'off', '-ctk', 'f32', '-ctv', 'f32',
      ...(template ? ['--chat-template-file', file] : [])]);
    for (const [hertz, fields] of [[300, {}], [500, { language: 'de' }], [700, { prompt: 'Names: Ottilie, Heinrich.' }],
      [900, { prompt: 'A town?', language: 'en' }]]) {
      const mine = await transcribe(hearth.client, hertz, fields);
      const its = await transcribe(llama, hertz, fields);
      const what = JSON.stringify([fields, mine, its]);
      assert.ok(its.text.length > 0, what);
      assert.equal(mine.text, its.text, what);
      assert.equal(mine.usage.input_tokens, its.usage.input_tokens, what);
      assert.equal(mine.usage.output_tokens, its.usage.output_tokens, what);
    }
    await hearth.stop();
  });
}

// Returns how many tokens were compared: llama-server joins tokens that are parts of a character, none behind them is.
function expectSame(mine, its, what) {
  const isPart = ({ bytes }) => bytes.some((byte) => byte > 127);
  for (const [i, theirs] of its.entries()) {
    const ours = mine[i];
    const [first, second] = theirs.top_logprobs;
    if (isPart(ours) || isPart(theirs)) return i;
    if (ours.token !== theirs.token && first.logprob - second.logprob < 0.01) return i;
    assert.equal(ours.token, theirs.token, `${what}, token ${i}`);
    assert.ok(Math.abs(ours.logprob - theirs.logprob) < 0.01, `${what}, token ${i}: ${ours.logprob} and ${theirs.logprob}`);
  }
  return its.length;
}

for (const { name, model, projector, asked } of kinds) {
  test(name, async (t) => {
    const path = model();
    const mmproj = projectorFor(path, projector);
    const models = { path, mmproj, context_window: 2048, n_seq_max: 1, cache_min_tokens: 0, cache_type_k: 'f32', cache_type_v: 'f32', flash_attention: 'off' };
    const hearth = await serve({ t, model: path, models, env: withFfmpeg });
    const llama = await peer(t, path, ['--mmproj', mmproj, '-c', '2048', '-np', '1', '-ub', '2048', '-fa', 'off', '-ctk', 'f32', '-ctv', 'f32'], withFfprobe());
    let compared = 0;
    for (const [i, messages] of asked.entries()) {
      const body = { messages, temperature: 0, max_tokens: 8, logprobs: true, top_logprobs: 2, ignore_eos: true };
      const mine = (await hearth.client.post('/v1/chat/completions', body));
      const its = (await llama.post('/v1/chat/completions', body));
      assert.deepEqual([mine.status, its.status], [200, 200], `${mine.text} ${its.text}`);
      assert.equal(mine.json.usage.prompt_tokens, its.json.usage.prompt_tokens, `conversation ${i}`);
      compared += expectSame(mine.json.choices[0].logprobs.content, its.json.choices[0].logprobs.content, `conversation ${i}`);
    }
    assert.ok(compared >= 8, `${compared} tokens were compared`);
    await hearth.stop();
  });
}

// Nothing that a client says is lost between its body and the prompt: every chat template that llama.cpp has, all four
// APIs, each role and form in which they let it speak, in the middle of a conversation and at its end. Every text is a
// word of its own, and every word is in the prompt once, in order; or the request is 400 with the field; or the header
// X-Hearth-Left-Out names it. tests/unit/chat/test_forms.cpp has more forms and places, of one API.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { demo } from './lib/models.js';
import { serve } from './lib/server.js';
import { isInPart } from './lib/part.js';

// llama-server stands in build/bin beside the source that it was built from.
const folder = join(dirname(process.env.LLAMA_SERVER ?? ''), '..', '..', 'source', 'models', 'templates');
const templates = readdirSync(folder).filter((name) => name.endsWith('.jinja')).sort();
const nameOf = (template) => template.replace(/\.jinja$/, '').replace(/[^A-Za-z0-9_-]/g, '_');

let server;
before(async () => {
  const set = {};
  for (const template of templates) {
    const keys = { path: demo, jinja_file: join(folder, template), context_window: 512, threads: 1 };
    for (const [key, value] of Object.entries(keys)) set[`models.${nameOf(template)}.${key}`] = value;
  }
  server = await serve({ model: demo, set: { ...set, 'cache.tiers.disk.quota_mb': 0 } });
});
after(() => server.stop());

// ---- Conversations: {role, texts, form, call: {id, name, x}, of} ----

class Conversation {
  words = [];
  said = [];

  word(of = {}) {
    this.words.push({ text: `qw${this.words.length + 100}zk`, ...of });
    return this.words.at(-1).text;
  }

  say(role, form = 'string', more = {}) {
    const texts = Array.from({ length: { string: 1, parts: 3, media: 2, none: 0 }[form] }, () => this.word());
    this.said.push({ role, form, texts, ...more });
  }

  call(form = 'none') {
    this.say('assistant', form);
    this.said.at(-1).call = { id: 'call00001', name: this.word({ isName: true }), x: this.word() };
  }
}

const speaks = {
  system: (c, form) => c.say('system', form),
  user: (c, form) => c.say('user', form),
  assistant: (c, form) => c.say('assistant', form),
  calls: (c, form) => { c.call(form); c.say('tool', 'string', { of: 'call00001' }); },
  tool: (c, form) => { c.call(); c.say('tool', form, { of: 'call00001' }); },
};

function conversation(role, form, place) {
  const c = new Conversation();
  if (role !== 'system') c.say('system');
  if (role !== 'user' && role !== 'system') c.say('user');
  speaks[role](c, form);
  if (role === 'system') c.say('user');
  if (place === 'last') return c;
  if (role !== 'assistant') c.say('assistant');
  c.say('user');
  return c;
}

// ---- APIs ----

const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const schema = { type: 'object', properties: { x: { type: 'string' } } };

// The content of one message, where `text` and `image` make the API's parts.
function content({ form, texts }, { text, image }) {
  if (form === 'none') return '';
  if (form === 'string') return texts[0];
  return form === 'parts' ? texts.map(text) : [text(texts[0]), image, text(texts[1])];
}

const inChat = { text: (text) => ({ type: 'text', text }), image: { type: 'image_url', image_url: { url: `data:image/png;base64,${png}` } } };
const inMessages = { text: (text) => ({ type: 'text', text }), image: { type: 'image', source: { type: 'base64', media_type: 'image/png', data: png } } };
const inResponses = { text: (text) => ({ type: 'input_text', text }), image: { type: 'input_image', image_url: `data:image/png;base64,${png}` } };
const ofAssistant = { ...inResponses, text: (text) => ({ type: 'output_text', text, annotations: [] }) };

const apis = {
  chat: {
    body: (said) => ({
      messages: said.map((one) => ({
        role: one.role, content: content(one, inChat), ...(one.of && { tool_call_id: one.of }),
        ...(one.call && { tool_calls: [{ id: one.call.id, type: 'function', function: { name: one.call.name, arguments: JSON.stringify({ x: one.call.x }) } }] }),
      })),
      tools: [{ type: 'function', function: { name: 'act', parameters: schema } }],
    }),
    forms: ['string', 'parts', 'media'],
  },
  messages: {
    body: (said) => ({
      max_tokens: 1,
      ...(said[0].role === 'system' && { system: content(said[0], inMessages) }),
      messages: said.slice(said[0].role === 'system' ? 1 : 0).map((one) => (one.of
        ? { role: 'user', content: [{ type: 'tool_result', tool_use_id: one.of, content: content(one, inMessages) }] }
        : {
          role: one.role,
          content: !one.call ? content(one, inMessages)
            : [...[content(one, inMessages)].flat().filter(Boolean).map((part) => (typeof part === 'string' ? inMessages.text(part) : part)),
              { type: 'tool_use', id: one.call.id, name: one.call.name, input: { x: one.call.x } }],
        })),
      tools: [{ name: 'act', input_schema: schema }],
    }),
    forms: ['string', 'parts', 'media'],
  },
  responses: {
    body: (said) => ({
      input: said.flatMap((one) => [
        ...(one.of ? [{ type: 'function_call_output', call_id: one.of, output: content(one, inResponses) }] : []),
        ...(!one.of && one.form !== 'none' ? [{ role: one.role, content: content(one, one.role === 'assistant' ? ofAssistant : inResponses) }] : []),
        ...(one.call ? [{ type: 'function_call', call_id: one.call.id, name: one.call.name, arguments: JSON.stringify({ x: one.call.x }) }] : []),
      ]),
      tools: [{ type: 'function', name: 'act', parameters: schema }],
    }),
    forms: ['string', 'parts', 'media'],
  },
  ollama: {
    body: (said) => ({
      messages: said.map((one) => ({
        role: one.role, content: one.texts.join('\n'), ...(one.form === 'media' && { images: [png] }),
        ...(one.call && { tool_calls: [{ function: { name: one.call.name, arguments: { x: one.call.x } } }] }),
      })),
      tools: [{ type: 'function', function: { name: 'act', parameters: schema } }],
    }),
    forms: ['string', 'media'],
  },
};

// ---- What becomes of the words ----

function faultOf(prompt, words) {
  let at = 0;
  for (const { text, isName } of words) {
    const found = prompt.indexOf(text);
    if (found < 0) return `lost ${text}`;
    if (!isName && prompt.indexOf(text, found + 1) >= 0) return `twice ${text}`;
    if (found < at) return `moved ${text}`;
    at = found;
  }
  return '';
}

async function check(template, api, role, form, place, count) {
  const c = conversation(role, form, place);
  // A last message of the assistant's is not continued by all APIs: what it says is in the prompt all the same.
  const { status, json, text, headers } = await server.client.post(`/apply-template?as=${api}`, { model: nameOf(template), ...apis[api].body(c.said) });
  const what = `${template}, ${api}, ${role}, ${form}, ${place}`;
  count.cells++;
  if (status === 400 && json.error.param) count.refused++;
  else if (status !== 200) count.faults.push(`${what}: ${text}`);
  else if (headers['x-hearth-left-out']) count.named++;
  else if (faultOf(json.prompt, c.words)) count.faults.push(`${what}: ${faultOf(json.prompt, c.words)}\n${json.prompt}`);
}

test('every word of every API, role and form is in the prompt of every template', async (t) => {
  assert.ok(templates.length > 60, folder);
  const count = { cells: 0, refused: 0, named: 0, faults: [] };
  // Each template hears of every fourth API, and each API meets every fourth template: what a template does with words does
  // not depend on the API, and tests/unit/chat/test_forms.cpp has every form with every template.
  for (const [i, template] of templates.entries()) {
    await Promise.all(Object.keys(apis).filter((_, k) => isInPart(i + k)).map(async (api) => {
      for (const role of Object.keys(speaks))
        for (const form of apis[api].forms)
          for (const place of ['middle', 'last']) await check(template, api, role, form, place, count);
    }));
  }
  t.diagnostic(`${count.cells} cells, ${count.refused} refused, ${count.named} named, ${count.faults.length} others`);
  assert.equal(count.faults.length, 0, `${count.faults.length} of ${count.cells}:\n${count.faults.slice(0, 12).join('\n\n')}`);
});

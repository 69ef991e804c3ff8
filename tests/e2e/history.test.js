// History is not judged: whatever official SDKs have types for may stand in the middle of a conversation. The SDKs' own
// type files say what that is; a minimal object of each type, and one with all optional members, is sent in every
// alternative. The answer is 200, and what the model is shown or the header X-Hearth-Left-Out has all of it.
//
// The template prints everything. A text is in the prompt if the prompt grows with it.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { smallModel } from './lib/models.js';
import { literalsOf, membersOfUnion, readTypes, sample } from './lib/sdk_types.js';
import { serve, temporaryFolder } from './lib/server.js';

const template = `{%- for m in messages -%}
<{{ m.role }}>{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}
{%- if m.content is string %}{{ m.content }}{% else %}{% for part in m.content or [] %}{{ part.text }}{% endfor %}{% endif %}
{%- for call in m.tool_calls or [] %}[{{ call.function.name }} {{ call.function.arguments | tojson }}]{% endfor %}
{%- endfor -%}
{%- if tools %}<tools>{{ tools | tojson }}{% endif %}
{%- if add_generation_prompt %}<assistant>{% endif %}`;

let server;
before(async () => {
  const path = join(temporaryFolder(), 'all.jinja');
  writeFileSync(path, template);
  server = await serve({ model: smallModel('qwen3', { layers: 1, template: path }), set: { 'cache.tiers.disk.quota_mb': 0 } });
});
after(() => server.stop());

// ---- Samples ----

const modules = join(dirname(fileURLToPath(import.meta.url)), 'node_modules');
const read = (path) => readTypes(join(modules, path));
const responses = read('openai/resources/responses/responses.d.ts');
const chats = read('openai/resources/chat/completions/completions.d.ts');
const messages = read('@anthropic-ai/sdk/resources/messages/messages.d.ts');
const beta = read('@anthropic-ai/sdk/resources/beta/messages/messages.d.ts');

// Strings that are no text for a model: ids, names of other servers, what is encrypted or binary, what says the same
// again.
const noText = new Set(['id', 'call_id', 'tool_call_id', 'tool_use_id', 'file_id', 'index', 'signature', 'encrypted_content', 'encrypted_stdout', 'fingerprint',
  'container_id', 'server_label', 'server_name', 'mcp_server_name', 'media_type', 'page_age', 'created_by', 'image_url', 'file_url', 'file_data',
  'namespace', 'toolset_name', 'stop_reason', 'approval_request_id', 'reason', 'tool_id', 'ttl', 'retrieved_at', 'response_id', 'caller_id', 'vector_store_id']);
const noTextIn = /(^|\.)(citations|annotations|logprobs|cache_control|caller|agent|attributes|acknowledged_safety_checks|pending_safety_checks|environment|tool_changes|prompt_cache_breakpoint)\b/;
const isBytes = (parent, name, path) => ['data', 'url', 'result'].includes(name) && ['base64', 'url', 'image', 'image_generation_call'].includes(parent.type) ||
  /(image_url\.url|input_audio\.data|file\.file_data)$/.test(path);
const isName = (parent, name) => name === 'filename' && parent.type !== undefined || name === 'filename' && 'file_data' in parent || name === 'name' && 'role' in parent;

// Every text of an object: {path, parent, name}.
function textsOf(value, path = '') {
  if (value === null || typeof value !== 'object') return [];
  return Object.entries(value).flatMap(([name, inner]) => {
    const here = Array.isArray(value) ? `${path}[${name}]` : path ? `${path}.${name}` : name;
    if (typeof inner !== 'string') return textsOf(inner, here);
    const word = inner.replace(/^\{"a":"|"\}$/g, '');
    return word.startsWith('w0') && !noText.has(name) && !noTextIn.test(here) && !isBytes(value, name, here) && !isName(value, name) ? [{ path: here, parent: value, name }] : [];
  });
}

const text = (path) => (/(^|\.)arguments$/.test(path) ? '{"a":"w0"}' : 'w0');

// All different samples of the members of a union; of those of one type, some.
function samplesOf(types, union) {
  const found = new Map();
  for (const { name, found: type } of membersOfUnion(types, union)) {
    for (const whole of [false, true]) {
      for (let pick = 0; pick < 6; pick++) {
        const value = { ...sample(types, type, { text, whole, pick }) };
        const own = literalsOf(types, type);
        if (own.length) value.type = own[pick % own.length];
        found.set(JSON.stringify(value), { name, value });
      }
    }
  }
  assert.ok(found.size > 1, `${union} has members`);
  return [...found.values()];
}

// ---- Asking ----

// The tokens of the prompt, and what was left out.
async function count(route, body) {
  const response = await server.client.post(route, body);
  assert.equal(response.status, 200, `${route} ${JSON.stringify(body)}: ${response.text}`);
  return { tokens: response.json.input_tokens, leftOut: response.headers['x-hearth-left-out']?.split(', ') ?? [] };
}

const long = 'w1 w2 w3 w4 w5 w6 w7 w8 w9';

// Fails unless each text of the sample is in the prompt or in a field that was left out. Returns whether all of it was.
async function check({ route, path, body }, { name, value }) {
  const { tokens, leftOut } = await count(route, body(value));
  const isOut = (at) => leftOut.some((out) => at === out || at.startsWith(`${out}.`) || at.startsWith(`${out}[`) || out.startsWith(`${at}.content`));
  for (const { path: at, parent, name: member } of textsOf(value)) {
    if (value.content?.length && at.startsWith('summary[')) continue; // of the reasoning, which is shown itself
    if (isOut(`${path}.${at}`)) continue;
    const short = parent[member];
    parent[member] = short.replace('w0', long);
    const grown = await count(route, body(value));
    parent[member] = short;
    assert.ok(grown.tokens >= tokens + 8, `${name}: '${at}' is neither in the prompt nor left out: ${JSON.stringify(value)}, left out: ${leftOut}`);
  }
  return leftOut.includes(path);
}

// Checks all samples. Returns the types of which each was left out whole, in order.
async function neverShown(place, samples) {
  const shown = new Set();
  for (const one of samples) if (!await check(place, one)) shown.add(one.value.type);
  return [...new Set(samples.map(({ value }) => value.type))].filter((type) => !shown.has(type)).sort();
}

const user = (content) => ({ role: 'user', content });
const assistant = (content) => ({ role: 'assistant', content });

// ---- Responses ----

const item = {
  route: '/v1/responses/input_tokens', path: 'input[1]', body: (value) => ({ input: [user('a'), value, user('b')] }),
};
const unseen = ['additional_tools', 'compaction', 'compaction_trigger', 'image_generation_call', 'mcp_approval_request', 'mcp_approval_response', 'mcp_list_tools'];

describe('Responses', () => {
  for (const union of ['ResponseInputItem', 'ResponseOutputItem', 'ResponseItem']) {
    test(`every item of ${union} may stand in the history`, async () => {
      // A reference is no item: what it names must be here.
      const samples = samplesOf(responses, union).filter(({ value }) => value.type !== 'item_reference' && Object.keys(value).join() !== 'id');
      const found = await neverShown(item, samples);
      assert.deepEqual(found, unseen.filter((type) => samples.some(({ value }) => value.type === type)));
    });
  }

  test('every part of a message and of a tool\'s result may stand in the history', async () => {
    const parts = ['ResponseInputContent', 'ResponseContent', 'ResponseFunctionCallOutputItem'].flatMap((union) => samplesOf(responses, union));
    for (const of of [user, assistant, (output) => ({ type: 'function_call_output', call_id: 'c', output })]) {
      const member = of([]).role ? 'content' : 'output';
      const place = { ...item, path: `input[1].${member}[0]`, body: (value) => ({ input: [user('a'), of([value]), assistant('c'), user('b')] }) };
      await neverShown(place, parts);
    }
  });
});

// ---- Messages ----

const turns = {
  assistant: { route: '/v1/messages/count_tokens', path: 'messages[1].content[0]', body: (value) => ({ messages: [user('a'), assistant([value]), user('b')] }) },
  user: { route: '/v1/messages/count_tokens', path: 'messages[0].content[0]', body: (value) => ({ messages: [user([value]), assistant('a'), user('b')] }) },
  result: {
    route: '/v1/messages/count_tokens', path: 'messages[2].content[0].content[0]',
    body: (value) => ({
      messages: [user('a'), assistant([{ type: 'tool_use', id: 't', name: 'n', input: {} }]), user([{ type: 'tool_result', tool_use_id: 't', content: [value] }])],
    }),
  },
};
const silent = ['container_upload', 'fallback', 'image', 'mcp_tool_listing', 'redacted_thinking', 'tool_addition', 'tool_removal'];

describe('Messages', () => {
  for (const [types, union] of [[messages, 'ContentBlock'], [messages, 'ContentBlockParam'], [beta, 'BetaContentBlock'], [beta, 'BetaContentBlockParam'], [beta, 'BetaToolsetToolUseBlock']]) {
    for (const role of ['assistant', 'user']) {
      test(`every block of ${union} may stand in a message of the ${role}`, async () => {
        const samples = samplesOf(types, union);
        assert.deepEqual(await neverShown(turns[role], samples), silent.filter((type) => samples.some(({ value }) => value.type === type)));
      });
    }
  }

  test('every block may stand in the last result of a tool', async () => {
    const blocks = samplesOf(beta, 'BetaContentBlockParam').filter(({ value }) => ['text', 'image', 'document', 'search_result'].includes(value.type));
    const references = samplesOf(beta, 'BetaRequestToolAdditionBlock').map(({ name, value }) => ({ name, value: { type: 'tool_reference', tool_name: 'w0', ...value.tool } }));
    await neverShown(turns.result, [...blocks, ...references]);
  });
});

// ---- Chats ----

describe('Chats', () => {
  const route = '/v1/chat/completions/input_tokens';

  test('every part and every call may stand in the history', async () => {
    const place = (path, body) => ({ route, path, body });
    const parts = samplesOf(chats, 'ChatCompletionContentPart');
    await neverShown(place('messages[0].content[0]', (value) => ({ messages: [user([value]), assistant('a'), user('b')] })), parts);
    const calls = samplesOf(chats, 'ChatCompletionMessageToolCall').filter(({ value }) => value.id);
    const called = (value) => ({ messages: [user('a'), { role: 'assistant', content: null, tool_calls: [value] }, { role: 'tool', tool_call_id: value.id, content: 'c' }] });
    assert.deepEqual(await neverShown(place('messages[1].tool_calls[0]', called), calls), []);
  });

  test('every message may stand in the history', async () => {
    const place = { route, path: 'messages[1]', body: (value) => ({ messages: [user('a'), value, user('b')] }) };
    await neverShown(place, samplesOf(chats, 'ChatCompletionMessageParam'));
  });
});

// ---- Types that nobody knows ----

test('what nobody knows is left out, and named', async () => {
  const nobody = { type: 'made_up_item', id: 'i', call_id: 'c', gift: 'w0' };
  for (const [place, path] of [[item, 'input[1]'], [turns.assistant, 'messages[1].content[0]'], [turns.user, 'messages[0].content[0]']]) {
    const { leftOut } = await count(place.route, place.body(nobody));
    assert.deepEqual(leftOut, [path]);
  }
});

test('what nobody knows and the user asks now is refused by its path', async () => {
  const part = { type: 'made_up_part', gift: 'w0' };
  for (const [route, body, param] of [
    ['/v1/responses', { input: [user([part])] }, /input\[0\]\.content\[0\]\.type/],
    ['/v1/messages', { max_tokens: 1, messages: [user([part])] }, /messages\[0\]\.content\[0\]\.type/],
    ['/v1/chat/completions', { messages: [user([part])] }, /messages\[0\]\.content\[0\]\.type/],
  ]) {
    const { status, json } = await server.client.post(route, body);
    assert.equal(status, 400);
    assert.match(json.error.message, param);
  }
});

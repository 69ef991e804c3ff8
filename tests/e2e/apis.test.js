// One conversation through all four APIs: what one of them answers, all do, and they show the model the same. Conversations
// that are unusual, but that agents send: results of tools last, two messages of the assistant's at the end, no user, calls
// whose arguments are no JSON.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { dirname, join } from 'node:path';
import { demo } from './lib/models.js';
import { serve } from './lib/server.js';

const folder = join(dirname(process.env.LLAMA_SERVER ?? ''), '..', '..', 'source', 'models', 'templates');
const templates = ['Qwen3-Coder', 'Qwen3.5-4B', 'meta-llama-Llama-3.1-8B-Instruct', 'mistralai-Mistral-Nemo-Instruct-2407', 'google-gemma-2-2b-it',
  'GLM-4.6', 'openai-gpt-oss-120b', 'deepseek-ai-DeepSeek-V3.1'];
const nameOf = (template) => template.replace(/[^A-Za-z0-9_-]/g, '_');

let server;
before(async () => {
  const set = { 'cache.tiers.disk.quota_mb': 0 };
  for (const template of templates) {
    const keys = { path: demo, jinja_file: join(folder, `${template}.jinja`), context_window: 1024, threads: 1 };
    for (const [key, value] of Object.entries(keys)) set[`models.${nameOf(template)}.${key}`] = value;
  }
  server = await serve({ model: demo, set });
});
after(() => server.stop());

// ---- Conversations: {role, text, calls: [{id, name, arguments}], of} ----

const system = (text) => ({ role: 'system', text });
const user = (text) => ({ role: 'user', text });
const assistant = (text, ...calls) => ({ role: 'assistant', text, calls });
const result = (of, text) => ({ role: 'tool', of, text });
const call = (id, args = '{"city":"Lisbon"}') => ({ id, name: 'get_weather', arguments: args });
const schema = { type: 'object', properties: { city: { type: 'string' } } };

const conversations = {
  'a question': { said: [system('Be brief.'), user('How are you?')] },
  'a result of a tool last': { said: [user('Weather?'), assistant('', call('call00001')), result('call00001', 'Sunny.')], tools: true },
  'arguments that are no JSON': { said: [user('Weather?'), assistant('', call('call00001', '{\'city\': 1')), result('call00001', 'No.')], tools: true },
  'no user': { said: [system('Write a poem.')] },
  'two messages of the assistant last': { said: [user('Count.'), assistant('One'), assistant('Two')], ends: 'differently' },
  // Nothing stands before a message that is continued: one template wants something. In Responses it is over.
  'only the assistant': { said: [assistant('One')], ends: 'differently', apart: { 'Qwen3.5-4B': 'responses' } },
};

// ---- APIs ----

const compact = (object) => Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined));
const parsed = (text) => {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
};

const apis = {
  chat: {
    route: '/v1/chat/completions',
    body: ({ said, tools }) => ({
      max_tokens: 1,
      messages: said.map(({ role, text, calls = [], of }) => compact({
        role, content: text, tool_call_id: of,
        tool_calls: calls.length ? calls.map(({ id, name, arguments: args }) => ({ id, type: 'function', function: { name, arguments: args } })) : undefined,
      })),
      ...(tools && { tools: [{ type: 'function', function: { name: 'get_weather', description: 'Weather', parameters: schema } }] }),
    }),
    tokens: ({ usage }) => usage.prompt_tokens,
  },
  messages: {
    route: '/v1/messages',
    body: ({ said, tools }) => ({
      max_tokens: 1,
      system: said[0].role === 'system' ? said[0].text : undefined,
      messages: said.filter((one, i) => i > 0 || one.role !== 'system' || said.length === 1).map(({ role, text, calls = [], of }) => (
        of ? { role: 'user', content: [{ type: 'tool_result', tool_use_id: of, content: text }] }
          : { role, content: calls.length ? calls.map(({ id, name, arguments: args }) => ({ type: 'tool_use', id, name, input: parsed(args) })) : text })),
      ...(said.length === 1 && { system: undefined }),
      ...(tools && { tools: [{ name: 'get_weather', description: 'Weather', input_schema: schema }] }),
    }),
    tokens: ({ usage }) => usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens,
  },
  responses: {
    route: '/v1/responses',
    body: ({ said, tools }) => ({
      max_output_tokens: 1, store: false,
      input: said.flatMap(({ role, text, calls = [], of }) => [
        ...(of ? [{ type: 'function_call_output', call_id: of, output: text }] : text || !calls.length ? [{ role, content: text }] : []),
        ...calls.map(({ id, name, arguments: args }) => ({ type: 'function_call', call_id: id, name, arguments: args })),
      ]),
      ...(tools && { tools: [{ type: 'function', name: 'get_weather', description: 'Weather', parameters: schema }] }),
    }),
    tokens: ({ usage }) => usage.input_tokens,
  },
  ollama: {
    route: '/api/chat',
    body: ({ said, tools }) => ({
      stream: false, options: { num_predict: 1 },
      messages: said.map(({ role, text, calls = [], of }) => compact({
        role, content: text, tool_call_id: of,
        tool_calls: calls.length ? calls.map(({ id, name, arguments: args }) => ({ id, function: { name, arguments: parsed(args) } })) : undefined,
      })),
      ...(tools && { tools: [{ type: 'function', function: { name: 'get_weather', description: 'Weather', parameters: schema } }] }),
    }),
    tokens: ({ prompt_eval_count }) => prompt_eval_count,
  },
};

for (const template of templates) {
  describe(template, () => {
    for (const [what, conversation] of Object.entries(conversations)) {
      test(what, async () => {
        const answers = {};
        for (const [name, { route, body, tokens }] of Object.entries(apis)) {
          const { status, json, text } = await server.client.post(route, { model: nameOf(template), ...body(conversation) });
          answers[name] = status === 200 ? { status, tokens: tokens(json) } : { status, text };
        }
        const seen = JSON.stringify(answers);
        delete answers[conversation.apart?.[template]];
        const [first, ...others] = Object.values(answers);
        for (const { status, tokens } of others) {
          assert.equal(status, first.status, seen);
          // The assistant's last message is continued by some APIs, and over in others.
          if (!conversation.ends) assert.equal(tokens, first.tokens, seen);
        }
      });
    }
  });
}

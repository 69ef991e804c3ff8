// Requests in the shapes that coding agents send: long instructions and tools first, facts of the folder after them,
// system and developer messages in the middle, tools that only their maker's servers have. Each conversation has three
// turns, and a question follows in another folder; a dense model and a hybrid whose template refuses later system messages.
// `make agents` runs the agents themselves.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { dirname, join } from 'node:path';
import { smallModel } from './lib/models.js';
import { serve } from './lib/server.js';

const templates = join(dirname(process.env.LLAMA_SERVER ?? ''), '..', '..', 'source', 'models', 'templates');
const shape = { layers: 2, embd: 64, heads: 2, 'kv-heads': 1, 'head-dim': 32, ff: 64, ctx: 16384 };
const models = {
  dense: () => smallModel('qwen3', { ...shape, template: join(templates, 'Qwen3-Coder.jinja') }),
  hybrid: () => smallModel('qwen35', { ...shape, layers: 4, template: join(templates, 'Qwen3.5-4B.jinja') }),
};

// ---- What agents say ----

const rules = 'Read a file before you change it. Run the tests when you have changed something. '.repeat(20);
const facts = (folder) => `Working directory: /home/otti/${folder}\nPlatform: linux\nToday: 2026-01-02\n`;
const parameters = { type: 'object', properties: { path: { type: 'string' }, text: { type: 'string' } }, required: ['path'] };
const described = (name) => ({ name, description: `${name}s a file. ${rules.slice(0, 300)}`, parameters });
const tools = ['read', 'write', 'search', 'list'].map(described);
const turns = ['What is in this folder?', 'Which language is it?', 'Add a test.'];
const limit = 8;

// Each has a route, the body of a conversation {folder, said: [question, reply, question, …]}, and how it reads the answer.
const agents = {
  // Blocks of system text, the first of which changes with every conversation; a later system message; hosted tools.
  'Claude Code': {
    route: '/v1/messages?beta=true',
    body: ({ folder, said, stamp }) => ({
      max_tokens: limit,
      system: [
        { type: 'text', text: `x-anthropic-billing-header: cc_version=2.1.197.${stamp}; cc_entrypoint=sdk-cli;` },
        { type: 'text', text: 'You are an agent for programs.' },
        { type: 'text', text: rules, cache_control: { type: 'ephemeral' } },
      ],
      tools: [...tools.map(({ parameters: input_schema, ...tool }) => ({ ...tool, input_schema })),
        { type: 'custom', ...described('edit'), parameters: undefined, input_schema: parameters }],
      messages: [
        { role: 'user', content: [{ type: 'text', text: `<system-reminder>${facts(folder)}</system-reminder>` }, { type: 'text', text: said[0] }] },
        { role: 'system', content: 'Skills that you have: none.' },
        ...said.slice(1).map((text, i) => ({ role: i % 2 ? 'user' : 'assistant', content: [{ type: 'text', text: text || '.' }] })),
      ],
      thinking: { type: 'adaptive' }, context_management: { edits: [] }, output_config: { effort: 'medium' },
      metadata: { user_id: `user_${stamp}` },
    }),
    reply: ({ content }) => content.map(({ text }) => text ?? '').join(''),
    cost: ({ usage }) => ({ prompt: usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens, cached: usage.cache_read_input_tokens }),
  },
  // Items, developer messages, tools in a namespace, free text, and such as only OpenAI has.
  Codex: {
    route: '/v1/responses',
    body: ({ folder, said, stamp }) => ({
      max_output_tokens: limit, store: false, instructions: rules, include: ['reasoning.encrypted_content'],
      prompt_cache_key: stamp, client_metadata: { version: '0.169.0' }, reasoning: { summary: 'auto' },
      parallel_tool_calls: true, tool_choice: 'auto',
      tools: [...tools.map((tool) => ({ type: 'function', strict: false, ...tool })),
        { type: 'namespace', name: 'multi_agent_v1', description: 'Other agents', tools: [{ type: 'function', ...described('spawn') }] },
        { type: 'custom', name: 'apply_patch', description: 'Changes files', format: { type: 'grammar', syntax: 'lark', definition: 'start: /a+/' } },
        { type: 'web_search' }, { type: 'image_generation' }, { type: 'local_shell' }],
      input: [
        { type: 'message', role: 'developer', content: [{ type: 'input_text', text: 'Be careful.' }] },
        { type: 'message', role: 'user', content: [{ type: 'input_text', text: facts(folder) }] },
        ...said.map((text, i) => ({ type: 'message', role: i % 2 ? 'assistant' : 'user',
          content: [{ type: i % 2 ? 'output_text' : 'input_text', text }] })),
      ],
    }),
    reply: ({ output }) => output.flatMap(({ content }) => content ?? []).map(({ text }) => text ?? '').join(''),
    cost: ({ usage }) => ({ prompt: usage.input_tokens, cached: usage.input_tokens_details.cached_tokens }),
  },
  // opencode, Qwen Code, pi: chats with tools; facts at the end of the instructions.
  chats: {
    route: '/v1/chat/completions',
    body: ({ folder, said }) => ({
      max_tokens: limit, tools: tools.map((tool) => ({ type: 'function', function: tool })), tool_choice: 'auto',
      messages: [{ role: 'system', content: rules + facts(folder) },
        ...said.map((content, i) => ({ role: i % 2 ? 'assistant' : 'user', content }))],
    }),
    reply: ({ choices }) => choices[0].message.content ?? '',
    cost: ({ usage }) => ({ prompt: usage.prompt_tokens, cached: usage.prompt_tokens_details.cached_tokens }),
  },
};

// ---- The conversations ----

for (const [kind, make] of Object.entries(models)) {
  describe(kind, () => {
    let server;

    before(async () => {
      server = await serve({ model: make(), models: { n_seq_max: 4, context_window: 16384 } });
    });
    after(() => server.stop());

    for (const [name, { route, body, reply, cost }] of Object.entries(agents)) {
      const say = async (conversation) => {
        const answer = await server.client.ask(route, { model: server.model, temperature: 0, ...body(conversation) });
        return { text: reply(answer), ...cost(answer) };
      };

      // How much of two prompts is the same from the start: a template may put what differs before the tools.
      const share = async (...bodies) => {
        const [a, b] = await Promise.all(bodies.map(async (one) => (await server.client.ask('/apply-template', one)).prompt));
        let n = 0;
        while (n < a.length && a[n] === b[n]) n += 1;
        return n / b.length;
      };

      test(`${name}: a turn computes what is new, another folder what differs`, async () => {
        const conversation = { folder: 'one', stamp: '7a9', said: [] };
        let before = 0;
        for (const turn of turns) {
          conversation.said.push(turn);
          const { text, prompt, cached } = await say(conversation);
          assert.ok(cached >= before * 0.95, `${cached} of ${before} tokens were found again`);
          conversation.said.push(text);
          before = prompt;
        }
        // The second folder may teach a hybrid where prompts part; the third finds what it has in common with them.
        const two = { folder: 'two', stamp: '94d', said: [turns[0]] };
        const three = { folder: 'three', stamp: '430', said: [turns[0]] };
        await say(two);
        const { prompt, cached } = await say(three);
        const common = route.endsWith('/chat/completions') ? await share(body(two), body(three)) : 1;
        assert.ok(cached >= 0.9 * common * prompt, `${cached} of ${prompt} tokens were found again, of which ${common} are common`);
      });
    }
  });
}

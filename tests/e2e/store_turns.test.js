// Turns whose cells hold more than their text: thoughts, calls of tools, the special tokens around them. What is stored
// of them is what was computed: read back, they are gone on from as far as without a restart, and with the same logprobs.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { smallModel } from './lib/models.js';
import { serve, temporaryFolder } from './lib/server.js';

const user = (content) => ({ role: 'user', content });

const template = join(temporaryFolder(), 'thinking.jinja');
writeFileSync(template, `{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' -}}
{%- if message.reasoning_content -%}{{- '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' -}}{%- endif -%}
{{- message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n<think>\\n' -}}{%- endif -%}`);

// Its tokens are known, so that what goes on from them does not depend on how text is cut into tokens.
const thoughts = {
  model: smallModel('llama', { template }),

  async first(server) {
    const { client } = server;
    const { prompt } = await client.ask('/apply-template', { messages: [user('What is heavier?')] });
    const { tokens } = await client.ask('/tokenize', { content: prompt, parse_special: true });
    const reply = await client.ask('/completion', { prompt: tokens, temperature: 0, n_predict: 100, return_tokens: true,
      grammar: 'root ::= "Lead is heavy. So is water." "\\n</think>\\n\\n" "Neither."' });
    assert.match(reply.content, /<\/think>\s+Neither\.$/);
    return { said: [...tokens, ...reply.tokens], total: tokens.length + reply.tokens.length };
  },

  async goOn({ client }, { said }) {
    const question = '<|im_end|>\n<|im_start|>user\nAnd what is light?<|im_end|>\n<|im_start|>assistant\n<think>\n';
    const { tokens } = await client.ask('/tokenize', { content: question, parse_special: true, add_special: false });
    const { completion_probabilities: logprobs, timings } = await client.ask('/completion',
      { prompt: [...said, ...tokens], temperature: 0, n_predict: 8, n_probs: 5, ignore_eos: true });
    return { logprobs, cached: timings.cache_n, computed: timings.prompt_n };
  },
};

const tools = [{ type: 'function', function: { name: 'get_weather', description: 'Weather of a city',
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] } } }];
const asked = [user('What is the weather in Lisbon?')];

const callOfTool = {
  async first({ client }) {
    const { choices: [{ message }], usage } = await client.chat({ messages: asked, tools, temperature: 0, max_tokens: 100 });
    assert.equal(message.tool_calls?.[0].function.name, 'get_weather', JSON.stringify(message));
    return { message, total: usage.total_tokens };
  },

  async goOn({ client }, { message }) {
    const result = { role: 'tool', tool_call_id: message.tool_calls[0].id, content: '{"weather":"sunny"}' };
    const { choices: [choice], timings } = await client.chat({ messages: [...asked, message, result], tools,
      temperature: 0, max_tokens: 8, logprobs: true, top_logprobs: 5 });
    return { logprobs: choice.logprobs.content, cached: timings.cache_n, computed: timings.prompt_n };
  },
};

for (const [name, { model, first, goOn }] of Object.entries({ thoughts, 'a call of a tool': callOfTool })) {
  test(`${name}: read back to the last token, and the logprobs that follow are the same`, async (t) => {
    const start = (disk) => serve({ t, model, set: { 'cache.tiers.disk.path': disk, 'cache.boundary_align_tokens': 16 },
      // The last bits of logprobs depend on how many rows a call has, and that on what drafts cost.
      models: { cache_min_tokens: 1, context_window: 1024, 'draft.sources': '[]' } });

    const unbroken = await start(temporaryFolder());
    const turn = await first(unbroken);
    const expected = await goOn(unbroken, turn);
    await unbroken.stop();
    assert.ok(expected.cached >= turn.total - 2, `${expected.cached} of ${turn.total} tokens are gone on from`);
    assert.ok(expected.logprobs.length > 0);

    const disk = temporaryFolder();
    const before = await start(disk);
    await first(before);
    await before.stop();
    const after = await start(disk);
    assert.deepEqual(await goOn(after, turn), expected);
    await after.stop();
  });
}

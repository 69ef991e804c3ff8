// Front ends and agents as they are: the AI SDK with its OpenAI-compatible provider, LangChain's agent, Cohere's and a
// Jina-style client for ranks.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { generateObject, generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { ChatOpenAI } from '@langchain/openai';
import { HumanMessage, SystemMessage } from '@langchain/core/messages';
import { tool as langTool } from '@langchain/core/tools';
import { createReactAgent } from '@langchain/langgraph/prebuilt';
import { z } from 'zod';
import { serve } from './lib/server.js';

let server;
let model;

before(async () => {
  server = await serve({ models: { n_seq_max: 2, context_window: 2048 } });
  const provider = createOpenAICompatible({ name: 'hearth', baseURL: `${server.url}/v1`, includeUsage: true, supportsStructuredOutputs: true });
  model = provider('demo');
});

after(() => server.stop());

const prompt = 'What is the weather in Lisbon?';
const asked = [];
const weather = tool({
  description: 'Weather of a city',
  inputSchema: jsonSchema({ type: 'object', properties: { city: { type: 'string' } }, required: ['city'] }),
  execute: async ({ city }) => { asked.push(city); return { weather: 'sunny' }; },
});

test('ai: generateText', async () => {
  const { text, usage, finishReason } = await generateText({ model, prompt: 'Who are you?', temperature: 0, maxRetries: 0 });
  assert.ok(text.length > 5);
  assert.equal(finishReason, 'stop');
  assert.ok(usage.inputTokens > 5 && usage.outputTokens > 1);
});

test('ai: streamText runs a tool and goes on with its result', async () => {
  asked.length = 0;
  const result = streamText({
    model, prompt, temperature: 0, tools: { get_weather: weather }, stopWhen: stepCountIs(3), maxRetries: 0,
    onError: ({ error }) => { throw error; },
  });
  let text = '';
  for await (const part of result.textStream) text += part;
  assert.deepEqual(asked, ['Lisbon']);
  assert.ok(text.length > 3);
  assert.equal((await result.steps).length, 2);
});

test('ai: generateObject', async () => {
  const schema = z.object({ city: z.string().max(10), degrees: z.number().int().min(-50).max(60) });
  const { object } = await generateObject({ model, schema, prompt, temperature: 0.7, seed: 1, maxRetries: 0 });
  assert.ok(schema.safeParse(object).success);
});

test('langchain: an agent calls its tool and answers', async () => {
  asked.length = 0;
  const llm = new ChatOpenAI({ model: 'demo', temperature: 0, apiKey: 'none', maxRetries: 0, configuration: { baseURL: `${server.url}/v1` } });
  const look = langTool(async ({ city }) => { asked.push(city); return 'sunny'; }, {
    name: 'get_weather', description: 'Weather of a city', schema: z.object({ city: z.string() }),
  });
  const agent = createReactAgent({ llm, tools: [look] });
  const { messages } = await agent.invoke({ messages: [new HumanMessage(prompt)] }, { recursionLimit: 8 });
  assert.deepEqual(asked, ['Lisbon']);
  assert.ok(messages.at(-1).content.length > 3);
});

test('langchain: streams and structured output', async () => {
  const llm = new ChatOpenAI({ model: 'demo', temperature: 0, apiKey: 'none', maxRetries: 0, configuration: { baseURL: `${server.url}/v1` } });
  let text = '';
  for await (const chunk of await llm.stream([new SystemMessage('The secret code is QX7B2.'), new HumanMessage('What is the secret code?')])) text += chunk.content;
  assert.match(text, /QX7B2/);
  const shaped = llm.withStructuredOutput(z.object({ code: z.string().max(8) }), { name: 'code', method: 'jsonSchema' });
  const { code } = await shaped.invoke('What is the secret code?');
  assert.equal(typeof code, 'string');
});

// Numbers of any size and precision, through each API's routes: they are taken, and come back with their digits.
// JSON.parse() would lose them, so that answers are compared as text.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { serve } from './lib/server.js';

const huge = '18446744073709551615'; // the largest of a Rust u64
const user = '{"role":"user","content":"Hi"}';
const schema = `{"type":"object","properties":{"id":{"type":"integer","maximum":${huge}}}}`;
const tool = `{"type":"function","function":{"name":"act","parameters":${schema}}}`;
let server;

before(async () => { server = await serve(); });
after(() => server.stop());

async function taken(path, body) {
  const reply = await server.client.post(path, body);
  assert.equal(reply.status, 200, `${path} ${body}: ${reply.text}`);
  return reply.text;
}

test('integers beyond 64 bits are taken in every API: in tools, in the history, as a seed', async () => {
  const call = `{"role":"assistant","content":null,"tool_calls":[{"id":"call00001","type":"function",
    "function":{"name":"act","arguments":"{\\"id\\":${huge}}"}}]},{"role":"tool","tool_call_id":"call00001","content":"ok"}`;
  const input = `{"id":${huge},"lat":52.52000659}`;
  const bodies = {
    '/v1/chat/completions': `{"messages":[${user},${call}],"tools":[${tool}],"seed":${huge},"max_tokens":1}`,
    '/apply-template': `{"messages":[${user},${call}],"tools":[${tool}]}`,
    '/v1/completions': `{"prompt":"Hi","seed":${huge},"max_tokens":1}`,
    '/completion': `{"prompt":"Hi","seed":${huge},"n_predict":1}`,
    '/v1/messages': `{"max_tokens":1,"tools":[{"name":"act","input_schema":${schema}}],"messages":[${user},
      {"role":"assistant","content":[{"type":"tool_use","id":"a","name":"act","input":${input}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"ok"}]}]}`,
    '/v1/responses': `{"input":[{"type":"message",${user.slice(1)},{"type":"function_call","call_id":"a","name":"act",
      "arguments":"{\\"id\\":${huge}}"},{"type":"function_call_output","call_id":"a","output":"ok"}],
      "tools":[{"type":"function","name":"act","parameters":${schema}}],"max_output_tokens":1}`,
    '/api/chat': `{"stream":false,"options":{"seed":${huge},"num_predict":1},"tools":[${tool}],"messages":[${user},
      {"role":"assistant","content":"","tool_calls":[{"function":{"name":"act","arguments":${input}}}]},
      {"role":"tool","content":"ok"}]}`,
    '/cache/lookup': `{"messages":[${user},${call}],"tools":[${tool}]}`,
  };
  for (const [path, body] of Object.entries(bodies)) await taken(path, body);
});

test('numbers that no integer or double holds reach the prompt as they were written', async () => {
  const numbers = ['18446744073709551616', '-123456789012345678901234567890', '1e400'];
  const call = `{"role":"assistant","content":null,"tool_calls":[{"id":"call00001","type":"function",
    "function":{"name":"act","arguments":"{\\"id\\":[${numbers}]}"}}]},{"role":"tool","tool_call_id":"call00001","content":"ok"}`;
  const wide = `{"type":"function","function":{"name":"act","parameters":{"type":"object","properties":{"id":{"enum":[${numbers}]}}}}}`;
  const prompt = JSON.parse(await taken('/apply-template', `{"messages":[${user},${call}],"tools":[${wide}]}`)).prompt;
  for (const number of numbers) assert.equal(prompt.split(number).length, 3, `${number} in ${prompt}`);
});

test('a stored response and a conversation give numbers back as they were', async () => {
  const item = `{"type":"message","role":"user","content":"Hi","x":[${huge},-${huge},1e400,0.30000000000000004,52.52000659]}`;
  const numbers = item.slice(item.indexOf('[')).slice(0, -1);
  const created = await taken('/v1/responses', `{"input":[${item}],"max_output_tokens":1,"metadata":{"id":${huge},"lat":52.52000659}}`);
  const { id } = JSON.parse(created);
  const found = await server.client.get(`/v1/responses/${id}`);
  for (const text of [created, found.text]) assert.ok(text.includes(`"metadata":{"id":${huge},"lat":52.52000659}`), text);
  const items = await server.client.get(`/v1/responses/${id}/input_items`);
  assert.ok(items.text.includes(numbers), items.text);
  await taken('/v1/responses', `{"input":"And?","previous_response_id":"${id}","max_output_tokens":1}`);
  const conversation = JSON.parse(await taken('/v1/conversations', `{"items":[${item}],"metadata":{"id":${huge}}}`));
  const kept = await server.client.get(`/v1/conversations/${conversation.id}/items`);
  assert.ok(kept.text.includes(numbers), kept.text);
});

test('the same seed beyond 64 bits draws the same tokens', async () => {
  const draw = async (seed) => JSON.parse(await taken('/v1/chat/completions',
    `{"messages":[${user}],"seed":${seed},"temperature":5,"top_k":0,"top_p":1,"min_p":0,"max_tokens":20}`)).choices[0].message.content;
  assert.equal(await draw(huge), await draw(huge));
  assert.equal(await draw('18446744073709551623'), await draw('7')); // 2^64 + 7
  assert.notEqual(await draw('7'), await draw('8'));
});

// Every chat template that llama.cpp has: hearth's prompt is the one that llama-server makes of the same body, unless that
// lacks a text of it or has one in another place, or knows no tools, which hearth's does; and where one of them refuses what is no history,
// so does the other. hearth serves all of them at once, each on the demo model's weights; llama-server
// takes one at a time.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { serve } from './lib/server.js';
import { peer } from './lib/peer.js';
import { demo } from './lib/models.js';
import { isInPart } from './lib/part.js';

// llama-server stands in build/bin beside the source that it was built from.
const folder = join(dirname(process.env.LLAMA_SERVER ?? ''), '..', '..', 'source', 'models', 'templates');
const all = readdirSync(folder).filter((name) => name.endsWith('.jinja')).sort();
// Each takes a llama-server of its own.
const templates = all.filter((_, i) => isInPart(i));

let hearth;

const nameOf = (template) => template.replace(/\.jinja$/, '').replace(/[^A-Za-z0-9_-]/g, '_');

before(async () => {
  const set = {};
  for (const template of templates) {
    const keys = { path: demo, jinja_file: join(folder, template), context_window: 512, threads: 1, incremental_cache: false };
    for (const [key, value] of Object.entries(keys)) set[`models.${nameOf(template)}.${key}`] = value;
  }
  hearth = await serve({ model: demo, set: { ...set, 'cache.tiers.disk.quota_mb': 0 } });
});

after(() => hearth.stop());

const user = { role: 'user', content: 'What is the weather in Lisbon?' };
const tool = {
  type: 'function',
  function: {
    name: 'get_weather', description: 'Weather of a city',
    parameters: { type: 'object', properties: { city: { type: 'string', description: 'Its name' } }, required: ['city'] },
  },
};
const call = { id: 'call00001', type: 'function', function: { name: 'get_weather', arguments: '{"city":"Lisbon"}' } };
const history = [
  user, { role: 'assistant', content: '', tool_calls: [call] },
  { role: 'tool', tool_call_id: 'call00001', name: 'get_weather', content: '{"sky":"clear"}' },
];
// The last message is the assistant's, and the reply goes on with what it has of these.
const begun = {
  text: { content: 'It is' }, parts: { content: [{ type: 'text', text: 'It' }, { type: 'text', text: 'is' }] },
  thought: { content: '', reasoning_content: 'Hm, the sky' }, both: { content: 'It is', reasoning_content: 'Hm, the sky' },
};
const ways = {
  'by itself': {}, asked: { continue_final_message: true, add_generation_prompt: false },
  content: { continue_final_message: 'content', add_generation_prompt: false },
  reasoning: { continue_final_message: 'reasoning_content', add_generation_prompt: false },
};
const continued = Object.entries(begun).flatMap(([what, message]) => Object.entries(ways).map(([way, more]) => [
  `${what}, continued ${way}`, { messages: [user, { role: 'assistant', ...message }], ...more }]));
const bodies = {
  plain: { messages: [user] },
  system: { messages: [{ role: 'system', content: 'Be brief.' }, user, { role: 'assistant', content: 'Sunny.' }, { role: 'user', content: 'And now?' }] },
  tools: { messages: [user], tools: [tool] },
  history: { messages: history, tools: [tool] },
  'no thinking': { messages: [user], chat_template_kwargs: { enable_thinking: false } },
  ...Object.fromEntries(continued),
};

// Runs after what a test registers for its end.
async function withPeer(template, use) {
  const ends = [];
  const llama = await peer({ after: (end) => ends.push(end) }, demo, ['-c', '512', '-np', '1', '--chat-template-file', join(folder, template)]);
  try {
    return await use(llama);
  } finally {
    ends.forEach((end) => end());
  }
}

const textsOf = ({ messages }) => messages.flatMap(({ content, tool_calls: calls }) => [
  ...(typeof content === 'string' ? [content] : []), ...(calls ?? []).map((one) => JSON.parse(one.function.arguments).city),
]).map((text) => text.replace(/[{}"]/g, ' ').trim().split(/[ :]+/).at(-1));

// Whether the prompt has all texts, in their order.
function tells(prompt, body) {
  let at = 0;
  return textsOf(body).every((text) => {
    const found = prompt.indexOf(text, at);
    at = found + text.length;
    return found >= 0;
  });
}

function isAsGood(ours, theirs, body) {
  const bothAnswer = ours.status === 200 && theirs.status === 200;
  if (bothAnswer && ours.json.prompt === theirs.json.prompt) return true;
  // Content behind reasoning that goes on is in neither prompt: only hearth says so.
  if (ours.status === 400 && /\.content/.test(ours.json.error.param)) return body.continue_final_message === 'reasoning_content';
  // Tools or calls that llama-server leaves out, or makes nothing of, are told of in words.
  const inWords = ours.status === 200 && body.tools && ours.json.prompt.includes('Where no function helps, answer without one.');
  if (inWords) return tells(ours.json.prompt, body) && ours.json.prompt.includes(tool.function.description);
  const weTell = ours.status === 200 && tells(ours.json.prompt, body);
  const theyTell = theirs.status === 200 && tells(theirs.json.prompt, body);
  return weTell ? !theyTell && (bothAnswer || body.messages.length > 1) : ours.status !== 200 && theirs.status !== 200;
}

async function compare(template) {
  const faults = [];
  await withPeer(template, async (llama) => {
    for (const [what, body] of Object.entries(bodies)) {
      const ours = await hearth.client.post('/apply-template', { ...body, model: nameOf(template) });
      const theirs = await llama.post('/apply-template', body);
      if (!isAsGood(ours, theirs, body)) faults.push(`${template}, ${what}:\n${ours.text}\n${theirs.text}`);
    }
  });
  return faults;
}

test('every template makes the prompt that llama-server makes', async () => {
  assert.ok(all.length > 60, folder);
  const waiting = [...templates];
  const faults = [];
  const work = async () => {
    for (let template = waiting.pop(); template; template = waiting.pop()) faults.push(...await compare(template));
  };
  await Promise.all([work(), work()]);
  assert.equal(faults.length, 0, `${faults.length} differ:\n${faults.slice(0, 6).join('\n\n')}`);
});

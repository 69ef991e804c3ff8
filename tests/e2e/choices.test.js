// What a reply is made of: several choices of one prompt, stop strings, the shortest of replies, turns that are gone on
// with, and reasoning, set apart from the answer.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { smallModel } from './lib/models.js';
import { serve, temporaryFolder } from './lib/server.js';
import { tokens } from './lib/wait.js';

const model = smallModel('llama');
const user = (content) => ({ role: 'user', content });
const assistant = (content, more) => ({ role: 'assistant', content, ...more });
const textOf = (reply) => reply.choices[0].text ?? reply.choices[0].message.content;

test('the choices of all requests together have a bound, which those that end leave', async (t) => {
  const { client } = await serve({ t, model, set: { 'server.max_connections': 8 }, models: { n_seq_max: 1, context_window: 1024 } });
  for (let i = 0; i < 3; i++) assert.equal((await client.complete({ prompt: 'Hi', n: 30, max_tokens: 1 })).choices.length, 30);
  const { status, json } = await client.post('/v1/completions', { prompt: 'Hi', n: 40, max_tokens: 1 });
  assert.equal(status, 429);
  assert.equal(json.error.param, 'n');
  assert.match(json.error.message, /server\.max_connections/);
});

describe('choices of one prompt', () => {
  const hot = { temperature: 1.5, top_k: 0, top_p: 1, ignore_eos: true };
  for (const slots of [1, 4]) {
    describe(`on ${slots} slots`, () => {
      let server;
      let client;
      before(async () => {
        server = await serve({ model, models: { n_seq_max: slots, context_window: 1024, deterministic: true } });
        client = server.client;
      });
      after(() => server.stop());

      test('the prompt is computed once, whatever their number, and counts once', async (t) => {
        const usual = (await serve({ t, model, models: { n_seq_max: slots, context_window: 1024 } })).client;
        for (const n of [2, 4, 8]) {
          const prompt = tokens(320, 70 + n);
          const before = await usual.metric('hearth_prompt_tokens_total');
          const reply = await usual.complete({ prompt, n, max_tokens: 8, seed: 1, ...hot });
          const computed = await usual.metric('hearth_prompt_tokens_total') - before;
          assert.equal(reply.choices.length, n);
          assert.deepEqual(reply.choices.map((choice) => choice.index), Array.from({ length: n }, (_, i) => i));
          assert.equal(reply.usage.prompt_tokens, 320);
          assert.equal(reply.usage.completion_tokens, 8 * n);
          assert.equal(reply.usage.total_tokens, 320 + 8 * n);
          assert.ok(computed >= 320 && computed < 320 + n, `${computed} prompt tokens computed for ${n} choices of 320`);
        }
      });

      test('a seed gives them all again; they differ from each other, and from those of another seed', async () => {
        const ask = async (seed, n = 4) => (await client.complete({ prompt: tokens(100, 80), n, max_tokens: 16, seed, ...hot }))
          .choices.map((choice) => choice.text);
        const first = await ask(11);
        assert.equal(new Set(first).size, 4);
        assert.deepEqual(await ask(11), first);
        assert.deepEqual(await ask(11, 2), first.slice(0, 2), 'fewer of them are the first of them');
        const other = await ask(900);
        assert.equal(new Set([...first, ...other]).size, 8);
        assert.deepEqual(await ask(12, 3), first.slice(1), 'each has the seed after that of the one before');
      });

      test('in a stream they come each by itself, the same', async () => {
        const body = { prompt: tokens(100, 81), n: 3, max_tokens: 16, seed: 5, ...hot };
        const whole = await client.complete(body);
        const stream = await client.streamed('/v1/completions', { ...body, stream_options: { include_usage: true } });
        assert.deepEqual(stream.texts, whole.choices.map((choice) => choice.text));
        assert.deepEqual(stream.finish, ['length', 'length', 'length']);
        const { prompt_tokens: prompts, completion_tokens: made } = stream.usage;
        assert.deepEqual([prompts, made], [100, 48]);
      });
    });
  }
});

describe('ends of replies', () => {
  let server;
  let client;
  let whole;
  const base = { prompt: tokens(20, 90), ignore_eos: true, max_tokens: 80, temperature: 0 };
  before(async () => {
    server = await serve({ model: smallModel('llama'), models: { n_seq_max: 2, context_window: 512 } });
    client = server.client;
    whole = textOf(await client.complete(base));
  });
  after(() => server.stop());

  const decoys = (count) => Array.from({ length: count }, (_, i) => `\u0001decoy ${i}`);
  // Strings of the text, from three places of it; the one that comes first in the text ends it.
  const pieces = () => [5, 20, 40].map((at) => whole.slice(at, at + 4)).filter((s) => s.length === 4 && !/\ufffd/.test(s));

  for (const count of [1, 4, 16]) {
    test(`${count} stop strings: the first that occurs ends the reply, at whichever place it stands`, async () => {
      for (const piece of pieces()) {
        const expected = whole.slice(0, whole.indexOf(piece));
        for (const place of new Set([0, count >> 1, count - 1])) {
          const stop = decoys(count);
          stop[place] = piece;
          const reply = await client.complete({ ...base, stop });
          assert.equal(textOf(reply), expected);
          assert.equal(reply.choices[0].finish_reason, 'stop');
          const stream = await client.streamed('/v1/completions', { ...base, stop });
          assert.equal(stream.text, expected);
          const native = await client.ask('/completion', { ...base, n_predict: 80, stop });
          assert.deepEqual([native.content, native.stop_type, native.stopping_word], [expected, 'word', piece]);
        }
      }
      const none = await client.complete({ ...base, stop: decoys(count) });
      assert.equal(textOf(none), whole);
      assert.equal(none.choices[0].finish_reason, 'length');
    });
  }

  test('of several that occur, the one that is complete first ends it', async () => {
    const found = pieces();
    assert.ok(found.length >= 2);
    const first = Math.min(...found.map((piece) => whole.indexOf(piece)));
    for (const stop of [found, [...found].reverse()]) assert.equal(textOf(await client.complete({ ...base, stop })), whole.slice(0, first));
  });

  test('17 are refused; so is what is no string', async () => {
    for (const stop of [decoys(17), [3], { a: 1 }]) {
      assert.equal((await client.refused(400, '/v1/completions', { ...base, stop })).param, 'stop');
    }
  });

  test('empty ones stop nothing', async () => {
    for (const stop of ['', [''], ['', ...decoys(1)]]) assert.equal(textOf(await client.complete({ ...base, stop })), whole);
  });

  test('no token at all: the prompt is computed and counted, and found by the next', async () => {
    const prompt = tokens(200, 91);
    for (const [path, body, name] of [
      ['/v1/completions', { prompt }, 'max_tokens'], ['/v1/chat/completions', { messages: [user('Hello there')] }, 'max_tokens'],
      ['/v1/chat/completions', { messages: [user('Hello here')] }, 'max_completion_tokens'],
    ]) {
      const reply = await client.ask(path, { ...body, [name]: 0 });
      assert.equal(textOf(reply), '');
      assert.equal(reply.choices[0].finish_reason, 'length');
      assert.equal(reply.usage.completion_tokens, 0);
      assert.equal(reply.timings.cache_n + reply.timings.prompt_n, reply.usage.prompt_tokens);
      const stream = await client.streamed(path, { ...body, [name]: 0 });
      assert.deepEqual([stream.text, stream.finish[0], stream.done], ['', 'length', true]);
    }
    const next = await client.complete({ prompt, max_tokens: 1 });
    assert.equal(next.timings.prompt_n, 1, 'all but one token is there');
    const native = await client.ask('/completion', { prompt: tokens(50, 92), n_predict: 0 });
    assert.deepEqual([native.content, native.tokens_predicted, native.tokens_evaluated], ['', 0, 50]);
  });

  test('one token is the first of many', async () => {
    const one = await client.complete({ ...base, max_tokens: 1 });
    assert.equal(one.usage.completion_tokens, 1);
    assert.equal(one.choices[0].finish_reason, 'length');
    const { tokens: [first] } = await client.ask('/completion', { ...base, n_predict: 80, return_tokens: true });
    const { tokens: [only] } = await client.ask('/completion', { ...base, n_predict: 1, return_tokens: true });
    assert.equal(only, first);
  });
});

describe("the assistant's words put into its mouth", () => {
  let server;
  let client;
  before(async () => {
    server = await serve({ models: { n_seq_max: 2, context_window: 1024 } });
    client = server.client;
  });
  after(() => server.stop());

  const start = 'My own name is';
  const prefilled = [user('Who are you?'), assistant(start)];

  test('the prompt ends with them, and the reply goes on', async () => {
    const { prompt } = await client.ask('/apply-template', { messages: prefilled });
    assert.ok(prompt.endsWith(start), prompt);
    const chat = await client.chat({ messages: prefilled, max_tokens: 12 });
    const raw = await client.complete({ prompt, max_tokens: 12 });
    assert.equal(textOf(chat), textOf(raw));
    assert.ok(!textOf(chat).startsWith(start), 'what was given is not said again');
    assert.equal(chat.usage.prompt_tokens, raw.usage.prompt_tokens);
  });

  test('a stream and Messages go on as well', async () => {
    const chat = textOf(await client.chat({ messages: prefilled, max_tokens: 12 }));
    const stream = await client.streamed('/v1/chat/completions', { messages: prefilled, max_tokens: 12 });
    assert.equal(stream.text, chat);
    const message = await client.ask('/v1/messages', { messages: prefilled, max_tokens: 12, temperature: 0 });
    assert.equal(message.content[0].text.trim(), chat.trim());
  });

  test('with echo it begins with them, in streams as well', async () => {
    const last = { role: 'assistant', content: [{ type: 'text', text: 'My own' }, { type: 'text', text: 'name is' }], reasoning_content: 'Hm' };
    const body = { messages: [user('Who are you?'), last], max_tokens: 12 };
    const plain = textOf(await client.chat(body));
    for (const [more, text, reasoning] of [
      [{}, `My own\n\nname is${plain}`, 'Hm'], [{ reasoning: { exclude: true } }, `My own\n\nname is${plain}`, undefined],
    ]) {
      const { message } = (await client.chat({ ...body, echo: true, ...more })).choices[0];
      assert.deepEqual([message.content, message.reasoning_content], [text, reasoning]);
      const stream = await client.streamed('/v1/chat/completions', { ...body, echo: true, ...more });
      assert.deepEqual([stream.text, stream.chunks.map(({ choices }) => choices[0]?.delta.reasoning_content ?? '').join('')], [text, reasoning ?? '']);
    }
    for (const more of [{ continue_final_message: false }, { messages: [user('Who are you?')] }]) {
      assert.equal(textOf(await client.chat({ ...body, ...more, echo: true })), textOf(await client.chat({ ...body, ...more })));
    }
  });

  test("an empty message of the assistant's opens its turn, as if it were not there", async () => {
    const plain = textOf(await client.chat({ messages: [user('Who are you?')], max_tokens: 12 }));
    for (const continue_final_message of [undefined, true, 'content', 'reasoning_content']) {
      for (const content of ['', null, []]) {
        const more = continue_final_message && { continue_final_message, add_generation_prompt: false };
        const reply = await client.chat({ messages: [user('Who are you?'), assistant(content)], max_tokens: 12, ...more });
        assert.equal(textOf(reply), plain, `${JSON.stringify(content)} ${continue_final_message}`);
      }
    }
  });
});

// ---- Reasoning ----

// A template that lets the model begin to think by itself, and one that makes it.
const thinking = (opened) => `{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' -}}
{%- if message.role == 'assistant' and message.reasoning_content -%}{{- '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' -}}{%- endif -%}
{{- message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- if enable_thinking is defined and enable_thinking is false -%}{{- '<think>\\n\\n</think>\\n\\n' -}}
{%- elif ${opened} -%}{{- '<think>\\n' -}}{%- endif -%}
{%- endif -%}`;

for (const opened of [false, true]) {
  describe(opened ? 'a model that is made to think' : 'a model that may think', () => {
    let server;
    let client;
    before(async () => {
      const template = join(temporaryFolder(), 'thinking.jinja');
      writeFileSync(template, thinking(opened));
      server = await serve({ model: smallModel('llama', { template }), models: { n_seq_max: 2, context_window: 512 } });
      client = server.client;
    });
    after(() => server.stop());

    const messages = [user('What is heavier?')];
    const thought = 'Lead is heavy. So is water.';
    const answer = 'Neither.';
    const grammar = `root ::= "${opened ? '' : '<think>\\n'}${thought}" "\\n</think>\\n\\n" "${answer}"`;
    const body = { messages, grammar, max_tokens: 200 };
    const silent = { messages, grammar: `root ::= "${answer}"`, chat_template_kwargs: { enable_thinking: false } };

    test('thoughts are set apart from the answer', async () => {
      const { message, finish_reason: finish } = (await client.chat(body)).choices[0];
      assert.equal(message.reasoning_content.trim(), thought);
      assert.equal(message.content, answer);
      assert.equal(finish, 'stop');
    });

    test('in a stream they come first, in deltas of their own, and say the same', async () => {
      const whole = (await client.chat(body)).choices[0].message;
      const stream = await client.streamed('/v1/chat/completions', body);
      const deltas = stream.chunks.flatMap((chunk) => chunk.choices).map((choice) => choice.delta);
      assert.equal(deltas.map((delta) => delta.reasoning_content ?? '').join(''), whole.reasoning_content);
      assert.equal(deltas.map((delta) => delta.content ?? '').join(''), whole.content);
      assert.ok(deltas.every((delta) => !(delta.content && delta.reasoning_content)), 'never both in one');
      const kinds = deltas.map((delta) => (delta.reasoning_content ? 'r' : delta.content ? 'c' : '')).join('');
      assert.match(kinds, /^rr+c+$/);
      assert.equal(deltas[0].role, 'assistant');
      assert.equal(stream.finish[0], 'stop');
    });

    test('reasoning_format none leaves them in the text', async () => {
      for (const more of [{ reasoning_format: 'none' }]) {
        const { message } = (await client.chat({ ...body, ...more })).choices[0];
        assert.equal(message.reasoning_content, undefined);
        assert.ok(message.content.includes(thought) && message.content.includes('</think>') && message.content.endsWith(answer));
        const stream = await client.streamed('/v1/chat/completions', { ...body, ...more });
        assert.equal(stream.text, message.content);
        assert.ok(stream.chunks.every((chunk) => chunk.choices.every((choice) => choice.delta.reasoning_content === undefined)));
      }
      const { message } = (await client.chat({ ...body, reasoning_format: 'deepseek' })).choices[0];
      assert.equal(message.content, answer);
      await client.refused(400, '/v1/chat/completions', { ...body, reasoning_format: 'aloud' });
    });

    test('without thinking there are none, in every way to say so', async () => {
      for (const more of [{ chat_template_kwargs: { enable_thinking: false } }, { enable_thinking: false }, { reasoning_effort: 'none' },
        { reasoning: { effort: 'none' } }, { reasoning: { enabled: false } }, { thinking: { type: 'disabled' } }]) {
        const { prompt } = await client.ask('/apply-template', { messages, ...more });
        assert.ok(prompt.endsWith('<think>\n\n</think>\n\n'), JSON.stringify(more) + prompt);
        const { message } = (await client.chat({ ...silent, chat_template_kwargs: undefined, ...more })).choices[0];
        assert.equal(message.content, answer, JSON.stringify(more));
        assert.equal(message.reasoning_content, undefined);
      }
    });

    test('they can be left out of the answer, and are counted all the same', async () => {
      const { choices: [{ message }], usage } = await client.chat({ ...body, reasoning: { exclude: true } });
      assert.deepEqual([message.content, message.reasoning_content], [answer, undefined]);
      assert.ok(usage.completion_tokens_details.reasoning_tokens > 0);
      const stream = await client.streamed('/v1/chat/completions', { ...body, reasoning: { exclude: true } });
      assert.equal(stream.text, answer);
      assert.ok(stream.chunks.every((chunk) => chunk.choices.every((choice) => choice.delta.reasoning_content === undefined)));
    });

    test('Messages and Responses have their own places for them', async () => {
      const message = await client.ask('/v1/messages', { ...body, temperature: 0 });
      assert.deepEqual(message.content.map((block) => block.type), ['thinking', 'text']);
      assert.equal(message.content[0].thinking.trim(), thought);
      assert.equal(message.content[1].text, answer);
      const { output } = await client.ask('/v1/responses', { input: messages, grammar, temperature: 0 });
      assert.deepEqual(output.map((item) => item.type), ['reasoning', 'message']);
      assert.equal(output[0].content[0].text.trim(), thought);
      assert.equal(output[1].content[0].text, answer);
      const mute = await client.ask('/v1/messages', { messages, max_tokens: 50, grammar: silent.grammar, thinking: { type: 'disabled' } });
      assert.deepEqual(mute.content.map((block) => [block.type, block.text]), [['text', answer]]);
    });

    test('thoughts of earlier turns reach the template', async () => {
      const history = [...messages, assistant(answer, { reasoning_content: thought }), user('Why?')];
      const { prompt } = await client.ask('/apply-template', { messages: history });
      assert.ok(prompt.includes(`<think>\n${thought}\n</think>\n\n${answer}<|im_end|>`), prompt);
    });

    // A biased token is all that this model thinks and says, for ever: only the budget ends its thoughts. A line's end that
    // the prompt opens them with counts as one token of theirs.
    if (opened) {
      const said = 'tion';
      const endless = { messages, max_tokens: 80, ignore_eos: true };
      const ways = {
        reasoning_budget_tokens: async (budget, word) => {
          const { message } = (await client.chat({ ...endless, logit_bias: { [word]: 100 }, reasoning_budget_tokens: budget })).choices[0];
          return [message.reasoning_content ?? '', message.content];
        },
        thinking_budget_tokens: async (budget, word) => {
          const { message } = (await client.chat({ ...endless, logit_bias: { [word]: 100 }, thinking_budget_tokens: budget })).choices[0];
          return [message.reasoning_content ?? '', message.content];
        },
        'reasoning.max_tokens': async (budget, word) => {
          const { message } = (await client.chat({ ...endless, logit_bias: { [word]: 100 }, reasoning: { max_tokens: budget } })).choices[0];
          return [message.reasoning_content ?? '', message.content];
        },
        'thinking of Messages': async (budget, word) => {
          const { content } = await client.ask('/v1/messages', {
            ...endless, logit_bias: { [word]: 100 }, thinking: { type: 'enabled', budget_tokens: budget },
          });
          return ['thinking', 'text'].map((type) => content.find((block) => block.type === type)?.[type] ?? '');
        },
        'a stream': async (budget, word) => {
          const stream = await client.streamed('/v1/chat/completions', { ...endless, logit_bias: { [word]: 100 }, reasoning_budget_tokens: budget });
          const deltas = stream.chunks.flatMap((chunk) => chunk.choices).map((choice) => choice.delta.reasoning_content ?? '');
          return [deltas.join(''), stream.text];
        },
      };
      for (const [way, ask] of Object.entries(ways)) {
        test(`a budget ends the thoughts: ${way}`, async () => {
          const { tokens: [word, ...rest] } = await client.ask('/tokenize', { content: said });
          assert.deepEqual(rest, []);
          for (const budget of [1, 2, 5, 16, 40]) {
            const [thoughts, answered] = await ask(budget, word);
            assert.equal(thoughts, said.repeat(thoughts.length / said.length));
            const spent = thoughts.length / said.length;
            assert.ok(spent === budget || spent === budget - 1, `${spent} tokens of ${budget}`);
            assert.ok(answered.length > 30 * said.length - budget, `an answer after ${budget}: ${answered}`);
            assert.equal(answered, said.repeat(answered.length / said.length), 'no marker shows');
          }
        });
      }

      test('a budget of nothing ends the thoughts at once', async () => {
        const { message } = (await client.chat({ messages, max_tokens: 40, ignore_eos: true, reasoning_budget_tokens: 0 })).choices[0];
        assert.equal(message.reasoning_content ?? '', '');
        assert.ok(message.content.length > 10);
        assert.ok(!message.content.includes('think>'), message.content);
      });

      test('what is said at the end of the budget is part of the thoughts', async () => {
        const { message } = (await client.chat({
          messages, max_tokens: 80, ignore_eos: true, reasoning_budget_tokens: 6, reasoning_budget_message: ' Enough of that.',
        })).choices[0];
        assert.match(message.reasoning_content, / Enough of that\.\s*$/);
        assert.ok(message.content.length > 10);
      });

      test('a budget that is not used up changes nothing', async () => {
        const plain = (await client.chat(body)).choices[0].message;
        assert.deepEqual((await client.chat({ ...body, reasoning_budget_tokens: 150 })).choices[0].message, plain);
      });

      test('a reply that ends while thinking has no content', async () => {
        const { message, finish_reason: finish } = (await client.chat({ ...body, max_tokens: 5 })).choices[0];
        assert.equal(finish, 'length');
        assert.ok(thought.startsWith(message.reasoning_content.trim()));
        assert.equal(message.content ?? '', '');
      });
    }
  });
}

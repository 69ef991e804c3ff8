// A real model for embeddings, all-MiniLM-L6-v2: vectors are those of a naive reference that reads the published weights and
// vocabulary itself.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { serve } from '../e2e/lib/server.js';
import { MiniLM } from './lib/bert.js';
import { all, realModel } from './lib/models.js';
import { prose } from './lib/text.js';

const { path: model, folder, skip } = realModel('minilm');

const texts = [
  'A',
  'The quick brown fox jumps over the lazy dog.',
  'What is the capital of France?',
  'HOW MUCH DOES IT COST, IN U.S. DOLLARS?!',
  'The server computes what is new in a prompt and no more.',
  'Où est le café? Déjà-vu, naïve, Noël.',
  'Straße, Größe, Übermut',
  'Привет, мир!',
  '你好世界',
  '東京は日本の首都です。',
  'مرحبا بالعالم',
  'שלום עולם',
  'e = mc^2; 3.14159 < 22/7 & x_1 >= -5',
  'printf("%d\\n", x[i] + ~y);',
  'https://example.org/a?b=c#d',
  '🙂 smile',
  'non\u00a0breaking\u2003space\ttab\nline',
  '“quotes” — dashes… ‘single’',
  'antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis',
  prose.slice(0, 500),
];

// Texts that llama.cpp's tokenizer cuts otherwise than BERT's does, and why.
const known = {
};

const cosine = (a, b) => {
  let dot = 0;
  for (let i = 0; i < a.length; i++) dot += a[i] * b[i];
  return dot / Math.hypot(...a) / Math.hypot(...b);
};

describe('all-MiniLM-L6-v2', { skip }, () => {
  let server, reference;
  before(async () => {
    server = await serve({ model, models: { n_seq_max: 2 } });
    reference = new MiniLM(folder);
  });
  after(() => server?.stop());

  const tokensOf = async (content) => (await server.client.ask('/tokenize', { content, add_special: true })).tokens;
  const vectorsOf = async (input) => {
    const { data, usage } = await server.client.ask('/v1/embeddings', { input });
    return { vectors: data.map(({ embedding }) => embedding), count: usage.prompt_tokens };
  };

  for (const text of texts) {
    test(`tokens and vector are the reference's: ${JSON.stringify(text.slice(0, 60))}`, async () => {
      const tokens = reference.tokens(text);
      assert.deepEqual(await tokensOf(text), tokens);
      const { vectors: [vector], count } = await vectorsOf(text);
      assert.equal(count, tokens.length);
      assert.ok(Math.abs(Math.hypot(...vector) - 1) < 1e-4, 'its length is 1');
      const near = cosine(vector, reference.embed(tokens));
      assert.ok(near >= 0.9999, `cosine ${near}`);
    });
  }

  test('many texts in one request have the vectors that each has alone', async () => {
    const { vectors } = await vectorsOf(texts);
    for (const [i, text] of texts.entries()) {
      const { vectors: [alone] } = await vectorsOf(text);
      assert.ok(cosine(vectors[i], alone) >= 0.99999, text);
    }
  });

  test('what means the same is nearer than what does not', async () => {
    const { vectors: [question, answer, other] } = await vectorsOf(['How do I reset my password?',
      'I forgot my login credentials and need new ones.', 'The cat sleeps on the warm roof.']);
    assert.ok(cosine(question, answer) > cosine(question, other) + 0.2, `${cosine(question, answer)}, ${cosine(question, other)}`);
  });

  for (const [text, { why, tokens }] of Object.entries(known)) {
    test(`known to differ, ${why}: ${JSON.stringify(text.slice(0, 60))}`, async () => {
      assert.deepEqual(await tokensOf(text), tokens, 'llama.cpp cuts it as when this was written');
      assert.notDeepEqual(tokens, reference.tokens(text), 'if it is the same now, the text belongs above');
      const { vectors: [vector] } = await vectorsOf(text);
      // Of the tokens that llama.cpp makes of it, the vector is right.
      const near = cosine(vector, reference.embed(tokens));
      assert.ok(near >= 0.9999, `cosine ${near}`);
    });
  }

  test('every paragraph of a text', { skip: all ? false : 'only in make real-all' }, async () => {
    for (const paragraph of prose.split('\n\n')) {
      const tokens = reference.tokens(paragraph);
      const { vectors: [vector] } = await vectorsOf(paragraph);
      assert.ok(cosine(vector, reference.embed(tokens)) >= 0.9999, paragraph);
    }
  });
});

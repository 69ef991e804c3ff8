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
  'Ελληνικά: Ο Οδυσσεύς ΟΔΥΣΣΕΥΣ',
  "İstanbul'da DİYARBAKIR",
  'ﬁnance ½ Ⅷ ① x²+y³ © 2024 ™ €',
  'e = mc^2; 3.14159 < 22/7 & x_1 >= -5',
  'printf("%d\\n", x[i] + ~y);',
  'https://example.org/a?b=c#d',
  '🙂 smile',
  'non\u00a0breaking\u2003space\ttab\nline',
  '“quotes” — dashes… ‘single’',
  'antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis',
  prose.slice(0, 500),
];

// Texts that llama.cpp's tokenizer cuts otherwise than BERT's does, so that their vectors are others, and why.
const known = {
  '안녕하세요 세계': 'BERT takes syllables of Hangul apart into letters, llama.cpp does not',
  '한국': 'the same',
  'नमस्ते दुनिया': 'vowels written as spacing marks are dropped as if they were accents',
  'தமிழ் বাংলা': 'the same',
  [`${'a'.repeat(120)}`]: 'a word of more than 100 characters is unknown to BERT, and cut into pieces by llama.cpp',
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

  const vectorsOf = async (input) => {
    const { data, usage } = await server.client.ask('/v1/embeddings', { input });
    return { vectors: data.map(({ embedding }) => embedding), count: usage.prompt_tokens };
  };

  for (const text of texts) {
    test(`the vector is the reference's: ${JSON.stringify(text.slice(0, 60))}`, async () => {
      const tokens = reference.tokens(text);
      const { vectors: [vector], count } = await vectorsOf(text);
      assert.equal(count, tokens.length);
      assert.ok(Math.abs(Math.hypot(...vector) - 1) < 1e-4, 'its length is 1');
      const near = cosine(vector, reference.embed(tokens));
      assert.ok(near >= 0.99999, `cosine ${near}`);
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

  for (const [text, why] of Object.entries(known)) {
    test(`known to differ: ${JSON.stringify(text.slice(0, 60))}: ${why}`, async () => {
      const tokens = reference.tokens(text);
      const expected = reference.embed(tokens);
      const { vectors: [vector] } = await vectorsOf(text);
      assert.ok(cosine(vector, expected) < 0.9999, 'it no longer does: the text belongs to the others');
      // Sent in BERT's tokens the text has its vector.
      const { vectors: [right] } = await vectorsOf([tokens]);
      assert.ok(cosine(right, expected) >= 0.99999);
    });
  }

  test('every paragraph of a text', { skip: all ? false : 'only in make real-all' }, async () => {
    for (const paragraph of prose.split('\n\n')) {
      const tokens = reference.tokens(paragraph);
      const { vectors: [vector] } = await vectorsOf(paragraph);
      assert.ok(cosine(vector, reference.embed(tokens)) > 0.99999, paragraph);
    }
  });
});

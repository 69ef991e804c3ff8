// Clients of Python, unmodified, with real models: each file of python/ is a unittest of a family of them.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { peer } from '../e2e/lib/peer.js';
import { modelName, serve, temporaryFolder } from '../e2e/lib/server.js';
import { realModel } from './lib/models.js';

const folder = fileURLToPath(new URL('python', import.meta.url));
const python = process.env.HEARTH_REAL_PYTHON; // of a venv with what requirements.txt names
const [chat, embed] = [realModel('smollm2'), realModel('minilm')];
const skip = chat.skip || embed.skip ||
  (python ? false : 'HEARTH_REAL_PYTHON is not set: scripts/real.sh python prints what it has to be');

describe('Python clients', { skip }, () => {
  const cache = temporaryFolder();
  let server;
  before(async () => {
    const names = [chat, embed].map(({ path }) => modelName(path));
    const config = join(temporaryFolder(), 'hearth.yaml');
    writeFileSync(config, JSON.stringify({
      server: { any_model_name: false },
      models: {
        // Replies are those of each run before, on this machine at least: a client finds an empty or an endless one always or never.
        [names[0]]: { path: chat.path, n_seq_max: 4, context_window: 4096, threads: 1, sampling: { temperature: 0 } },
        [names[1]]: { path: embed.path, n_seq_max: 2, threads: 1 },
      },
    }));
    server = await serve({ args: ['--config', config] });
    server.env = { HEARTH_URL: server.url, HEARTH_CHAT_MODEL: names[0], HEARTH_EMBED_MODEL: names[1] };
  });
  after(() => server?.stop());

  for (const file of readdirSync(folder).filter((name) => /^test_.*\.py$/.test(name))) {
    test(file, { timeout: 300_000 }, async (t) => {
      // llama-server on the same model, for what compares with it.
      const other = file === 'test_lm_eval.py' && process.env.LLAMA_SERVER ? await peer(t, chat.path, ['-c', '4096']) : null;
      // What the tests compile goes with the folder; those of the packages lie in the venv.
      const child = spawn(python, ['-W', 'ignore', '-B', file], { cwd: folder, signal: t.signal, killSignal: 'SIGKILL',
        env: { ...process.env, ...server.env, ...other && { HEARTH_PEER_URL: `http://127.0.0.1:${other.port}` },
          HOME: cache, PYTHONPATH: '', PYTHONUNBUFFERED: '1' } });
      let output = '';
      for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text) => { output += text; });
      const status = await new Promise((resolve) => {
        child.on('error', (error) => { output += error; });
        child.on('close', resolve);
      });
      assert.equal(status, 0, output);
      assert.match(output, /^Ran \d+ tests? in /m);
    });
  }
});

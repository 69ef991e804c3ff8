// The real models, where scripts/real.sh has put them.

import { existsSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';

const deps = process.env.HEARTH_DEPS || join(homedir(), '.cache', 'hearth', 'deps');
const folder = process.env.HEARTH_REAL_MODELS || join(deps, 'real-models');
const missing = process.env.HEARTH_REAL_MISSING; // undefined where a test is run by hand

const files = {
  smollm2: 'SmolLM2-135M-Instruct.Q4_1.gguf',
  gemma3: 'gemma-3-270m-q4_k_m.gguf',
  minilm: 'all-MiniLM-L6-v2.gguf',
};

// The longer versions of the tests: `make real-all`.
export const all = process.env.HEARTH_REAL === 'all';

// {path, folder, skip}: `skip` is false, or why the tests of this model cannot run. What the script says it has fetched
// has to be there.
export function realModel(name) {
  const path = join(folder, files[name]);
  let skip = false;
  if (missing?.split(' ').includes(name)) skip = `${name} could not be fetched`;
  else if (!existsSync(path)) {
    if (missing !== undefined) throw new Error(`${path} is not there`);
    skip = `${name} is not there: scripts/real.sh fetch ${name}`;
  }
  return { path, folder: path.replace(/\.gguf$/, ''), skip };
}

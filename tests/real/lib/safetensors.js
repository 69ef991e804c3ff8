// Reads the weights of a model from a file in the format safetensors: the length of a JSON header, the header, the numbers.

import { readFileSync } from 'node:fs';

// A Map from the name of each tensor to {shape, values}.
export function readSafetensors(path) {
  const file = readFileSync(path);
  const length = Number(file.readBigUInt64LE(0));
  const header = JSON.parse(file.toString('utf8', 8, 8 + length));
  const tensors = new Map();
  for (const [name, { dtype, shape, data_offsets: place }] of Object.entries(header)) {
    if (dtype !== 'F32') continue; // __metadata__, and positions, which are whole numbers from 0
    const [from, to] = place;
    const bytes = file.buffer.slice(file.byteOffset + 8 + length + from, file.byteOffset + 8 + length + to);
    tensors.set(name, { shape, values: new Float32Array(bytes) });
  }
  return tensors;
}

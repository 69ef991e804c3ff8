// Images, sounds and videos to upload, in base64.

import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { deflateSync } from 'node:zlib';
import { temporaryFolder } from './server.js';

function crc32(bytes) {
  let crc = ~0;
  for (const byte of bytes) {
    crc ^= byte;
    for (let i = 0; i < 8; i++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}

function pngChunk(type, data) {
  const chunk = Buffer.alloc(12 + data.length);
  chunk.writeUInt32BE(data.length, 0);
  chunk.write(type, 4, 'latin1');
  data.copy(chunk, 8);
  chunk.writeUInt32BE(crc32(chunk.subarray(4, 8 + data.length)), 8 + data.length);
  return chunk;
}

// A gradient; another seed is another image.
export function png(seed, width = 112, height = 84) {
  const rows = Buffer.alloc(height * (1 + 3 * width));
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < 3 * width; x++) rows[y * (1 + 3 * width) + 1 + x] = (x * 3 + y * 5 + seed * 40) & 255;
  }
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  head.set([8, 2, 0, 0, 0], 8);
  return Buffer.concat([Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'), pngChunk('IHDR', head), pngChunk('IDAT', deflateSync(rows)),
    pngChunk('IEND', Buffer.alloc(0))]).toString('base64');
}

// Half a second of a tone.
export function wav(hertz = 440, rate = 8000) {
  const n = rate / 2;
  const file = Buffer.alloc(44 + 2 * n);
  file.write('RIFF', 0, 'latin1');
  file.writeUInt32LE(36 + 2 * n, 4);
  file.write('WAVEfmt ', 8, 'latin1');
  file.writeUInt32LE(16, 16);
  file.writeUInt16LE(1, 20);
  file.writeUInt16LE(1, 22);
  file.writeUInt32LE(rate, 24);
  file.writeUInt32LE(2 * rate, 28);
  file.writeUInt16LE(2, 32);
  file.writeUInt16LE(16, 34);
  file.write('data', 36, 'latin1');
  file.writeUInt32LE(2 * n, 40);
  for (let i = 0; i < n; i++) file.writeInt16LE(Math.round(9000 * Math.sin((2 * Math.PI * hertz * i) / rate)), 44 + 2 * i);
  return file.toString('base64');
}

// Where ffmpeg lies, for PATH.
const arch = process.arch === 'arm64' ? 'arm64' : 'x64';
export const ffmpegFolder = dirname(fileURLToPath(import.meta.resolve(`@ffmpeg-installer/linux-${arch}/ffmpeg`)));
export const withFfmpeg = { PATH: `${ffmpegFolder}:${process.env.PATH}` };

// A picture that changes, four times a second; another seed is another video.
export function mp4(seed, { seconds = 1, width = 56, height = 56, type = 'mp4' } = {}) {
  const file = join(temporaryFolder(), `video.${type}`);
  const frames = Buffer.alloc(4 * seconds * width * height * 3, 0);
  for (let i = 0; i < frames.length; i++) frames[i] = (Math.floor(i / (width * height * 3)) * 60 + i * (seed + 1)) & 255;
  execFileSync(join(ffmpegFolder, 'ffmpeg'), ['-v', 'error', '-f', 'rawvideo', '-pix_fmt', 'rgb24', '-s', `${width}x${height}`,
    '-r', '4', '-i', '-', '-pix_fmt', 'yuv420p', file], { input: frames });
  return readFileSync(file).toString('base64');
}

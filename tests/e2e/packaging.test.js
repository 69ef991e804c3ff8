// What packagers start from: the Homebrew formula agrees with what a build installs on Debian, and a build for Vulkan says
// at once what it lacks. No Homebrew and no GPU are needed.

import { describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { temporaryFolder } from './lib/server.js';

const top = fileURLToPath(new URL('../..', import.meta.url));
const read = (path) => readFileSync(join(top, path), 'utf8');

describe('the Homebrew formula', () => {
  const version = /^project\(hearth VERSION ([0-9.]+)/m.exec(read('CMakeLists.txt'))[1];
  const archive = join(temporaryFolder(), `hearth-${version}.tar.gz`);
  writeFileSync(archive, 'sources');
  const formula = (env) => execFileSync(join(top, 'scripts/formula.sh'), [archive], { encoding: 'utf8', env: { ...process.env, HEARTH_RELEASES: '', ...env } });

  test('names the archive of this version and its checksum', () => {
    const text = formula({ HEARTH_RELEASES: 'https://releases.example/hearth' });
    assert.match(read('scripts/dist.sh'), /hearth-\$version\.tar\.gz/);
    assert.equal(/^ {2}url "(.*)"$/m.exec(text)[1], `https://releases.example/hearth/hearth-${version}.tar.gz`);
    assert.equal(/^ {2}sha256 "(.*)"$/m.exec(text)[1], createHash('sha256').update('sources').digest('hex'));
    assert.doesNotMatch(text, /@[A-Z0-9]+@/);
    assert.equal(/^ {2}url "(.*)"$/m.exec(formula())[1], `file://${archive}`, 'for a try on this machine');
  });

  test('depends on what scripts/packages.sh installs', () => {
    // Debian's names; null: Homebrew brings it with itself or with another one.
    const names = {
      cmake: 'cmake', 'ninja-build': 'ninja', 'pkg-config': 'pkgconf', git: null, curl: 'curl', openssl: 'openssl@3', nodejs: 'node', npm: 'node',
      'build-essential': 'binutils', 'ca-certificates': null, 'libevent-dev': 'libevent', 'libjansson-dev': 'jansson', 'libyaml-dev': 'libyaml',
      'libssl-dev': 'openssl@3', 'libisal-dev': 'isa-l', 'libpcre2-dev': 'pcre2', 'libcurl4-openssl-dev': 'curl', 'libedit-dev': 'libedit',
      'libcmocka-dev': 'cmocka', 'node-llhttp': 'llhttp', 'libpng-dev': 'libpng', 'libturbojpeg0-dev': 'jpeg-turbo', 'libwebp-dev': 'webp',
      'libgif-dev': 'giflib', 'libsndfile1-dev': 'libsndfile', 'libsamplerate0-dev': 'libsamplerate', 'libhiredis-dev': 'hiredis',
      'libzmq3-dev': 'zeromq', 'libmp3lame-dev': null,
    };
    const script = read('scripts/packages.sh').replace(/^if \[ "\$\{1:-\}" = test \][^]*?^elif ! /m, 'elif ! '); // without those of tests and of lavapipe
    const programs = [...script.matchAll(/programs\+?='([^']*)'/g)].flatMap(([, list]) => list.trim().split(/\s+/).map((entry) => entry.split(':')[0]));
    const libraries = [...script.matchAll(/libraries\+?='([^']*)'/g)].flatMap(([, list]) => list.trim().split(/\s+/));
    const installed = [...programs, ...libraries];
    assert.deepEqual(new Set(installed), new Set(Object.keys(names)));
    const depends = [...formula().matchAll(/^ {2}depends_on "([^"]+)"/gm)].map(([, name]) => name);
    const wanted = installed.map((name) => names[name]).filter((name) => name !== null);
    assert.deepEqual(new Set(depends), new Set([...wanted, 'util-linux'])); // flock, which Debian has anyhow
    assert.deepEqual(depends, [...new Set(depends)]);
  });
});

describe('a build for Vulkan', () => {
  // A glslc that knows the extension or does not, as Debian's 2023.2 says it.
  const compiler = (knows) => {
    const path = join(temporaryFolder(), 'glslc');
    writeFileSync(path, `#!/bin/sh
      grep -q '^#extension GL_KHR_cooperative_matrix : require' || { echo 'not asked' >&2; exit 1; }
      ${knows ? 'exit 0' : `echo "<stdin>:2: error: '#extension' : extension not supported: GL_KHR_cooperative_matrix" >&2; exit 1`}\n`, { mode: 0o755 });
    return path;
  };
  const tools = temporaryFolder(); // without a glslc of this machine
  for (const name of ['bash', 'sed', 'dirname', 'grep', 'mkdir', 'flock', 'paste'])
    symlinkSync(execFileSync('sh', ['-c', `command -v ${name}`], { encoding: 'utf8' }).trim(), join(tools, name));
  const build = (flags, env = {}) => {
    const deps = join(temporaryFolder(), 'deps');
    const { status, stderr } = spawnSync(join(top, 'scripts/llama.sh'), {
      encoding: 'utf8', env: { HEARTH_DEPS: deps, LLAMA_CPP_DIR: '/', LLAMA_FLAGS: flags, PATH: tools, ...env },
    });
    assert.notEqual(status, 0);
    return { stderr, begun: existsSync(deps) };
  };
  const beside = (path) => ({ PATH: `${path.replace(/\/glslc$/, '')}:${tools}` });

  test('is refused at once without a glslc that knows what the shaders use', () => {
    for (const [env, says] of [[{}, /there is no glslc/], [beside(compiler(false)), /glslc says: .*extension not supported: GL_KHR_cooperative_matrix/]]) {
      const { stderr, begun } = build('-DGGML_VULKAN=ON', env);
      assert.match(stderr, /^llama\.cpp: Vulkan needs a glslc that knows GL_KHR_cooperative_matrix.*VULKAN_SDK/);
      assert.match(stderr, says);
      assert.equal(begun, false);
    }
  });

  test('goes on with one, where CMake finds it, and nobody else is asked for it', () => {
    const good = compiler(true), bad = beside(compiler(false));
    const sdk = temporaryFolder();
    mkdirSync(join(sdk, 'bin'));
    symlinkSync(good, join(sdk, 'bin/glslc'));
    const ways = [
      ['-DGGML_VULKAN=ON', beside(good)],
      ['-DGGML_VULKAN=ON', { ...bad, VULKAN_SDK: sdk }],
      [`-DFOO=1 -DGGML_VULKAN=ON -DVulkan_GLSLC_EXECUTABLE=${good}`, bad],
      ['-DGGML_CUDA=ON', bad],
      ['-DGGML_VULKAN=OFF', bad],
    ];
    for (const [flags, env] of ways) {
      const { stderr, begun } = build(flags, env);
      assert.match(stderr, /LLAMA_CPP_DIR=\/ is version 'unknown'/, flags);
      assert.equal(begun, true);
    }
  });
});

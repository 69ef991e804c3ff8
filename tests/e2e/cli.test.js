// The command line: what hearth says and how it exits.

import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { bareModel, demo, hearth, smallModel, source } from './lib/models.js';
import { run, serve, temporaryFolder } from './lib/server.js';
import { saved } from './lib/store.js';
import { until, within } from './lib/wait.js';

let folder;
before(() => { folder = mkdtempSync(join(tmpdir(), 'hearth-e2e-')); });
after(() => rmSync(folder, { recursive: true }));

const file = (name, text) => {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
};

// One line on stderr that matches all patterns, and this exit code. Lines of the log are not the message.
const complains = (result, code, ...patterns) => {
  assert.equal(result.code, code, result.stderr);
  const lines = result.stderr.trim().split('\n');
  const line = lines.find((text) => patterns.every((pattern) => pattern.test(text)));
  assert.ok(line, `a line of stderr matches ${patterns.join(' and ')}:\n${result.stderr}`);
  return lines;
};

test('version tells hearth\'s, llama.cpp\'s and the CPU\'s', async () => {
  const { code, stdout } = await run(['version']);
  assert.equal(code, 0);
  assert.match(stdout, /hearth \d+\.\d+\.\d+/);
  assert.match(stdout, /llama\.cpp .*0\.5\.0/);
  assert.match(stdout, /cpu.*(SSE|AVX|NEON|BMI|FMA)/is);
});

test('every command explains itself with examples', async () => {
  for (const command of [[], ['serve'], ['chat'], ['ps'], ['stop'], ['launch'], ['fit'], ['model'], ['model', 'info'], ['model', 'vram'], ['config', 'check'],
    ['config', 'dump'], ['version'], ['cache'], ['cache', 'explain']]) {
    const { code, stdout, stderr } = await run([...command, '--help']);
    assert.equal(code, 0, `${command.join(' ')}: ${stderr}`);
    assert.match(stdout, /hearth/);
    assert.match(stdout, /example/i, `${command.join(' ')} --help has examples`);
  }
});

describe('bad usage exits 2', () => {
  for (const args of [['serve', '--prot', '8080'], ['serve', '--port'], ['serve', '--port', 'http'],
    ['serve', '--port', '70000'], ['frobnicate'], ['model', 'frobnicate'], ['model', 'info'], ['config', 'check'],
    ['chat', '--nonsense'], ['version', 'x'], ['serve', '--set', 'novalue']]) {
    test(`hearth ${args.join(' ')}`, async () => {
      const result = await run(args);
      assert.equal(result.code, 2, result.stderr);
      assert.match(result.stderr, /\S/);
      assert.ok(args.some((arg) => result.stderr.includes(arg)), `names what is wrong: ${result.stderr}`);
    });
  }

  test('no command at all', async () => assert.equal((await run([])).code, 2));

  test('an unknown option is told the nearest one', async () => {
    complains(await run(['serve', '--prot', '8080']), 2, /--prot/, /--port/);
  });

  test('an unknown key of --set is told the nearest one', async () => {
    complains(await run(['serve', '--set', 'models.demo.n_seqmax=4']), 2, /n_seqmax/, /n_seq_max/);
    complains(await run(['serve', '--set', 'server.lisen=127.0.0.1:0']), 2, /lisen/, /listen/);
  });

  test('a value of --set that its key cannot take', async () => {
    for (const set of ['models.demo.n_seq_max=many', 'models.demo.n_seq_max=-1', 'models.demo.context_window=0.5',
      'models.demo.cache_type_k=f12', 'models.demo.deterministic=perhaps', 'server.max_body_bytes=-7']) {
      const key = set.split('=')[0].split('.').at(-1);
      complains(await run(['serve', '--port', '0', '--set', set]), 2, new RegExp(key));
    }
  });
});

describe('config check', () => {
  test('a good file is fine', async () => {
    const path = file('good.yaml', `server:
  listen: 127.0.0.1:0
  drain-timeout: 3        # kebab-case is read too
cache:
  tiers:
    ram: {quota_mb: 64}
models:
  demo:
    path: ${demo}
    context_window: 2048
    n_seq_max: 8
    n_batch: 2048
    n_ubatch: 512
    cache_type_k: q8_0
    cache_type_v: q8_0
    flash_attention: true
    sampling: {temperature: 0.5, top_k: 10}
`);
    const { code, stderr } = await run(['config', 'check', path]);
    assert.equal(code, 0, stderr);
  });

  test('every error is told with file, line and key', async () => {
    const path = file('bad.yaml', `server:
  listn: 127.0.0.1:8080
  drain_timeout: soon
models:
  demo:
    path: ${demo}
    n_seqmax: 4
    context_window: [1, 2]
    deterministic: 7.5
`);
    const result = await run(['config', 'check', path]);
    const at = (line, ...words) => complains(result, 2, new RegExp(`bad\\.yaml:${line}\\b`), ...words);
    at(2, /listn/, /listen/);
    at(3, /drain_timeout/);
    at(7, /n_seqmax/, /n_seq_max/);
    at(8, /context_window/);
    at(9, /deterministic/);
  });

  test('names that other servers use are told as the keys that they stand for', async () => {
    const theirs = {
      'server.port': 'server.listen', 'server.host': 'server.listen', 'server.api_key': 'server.api_keys_file', 'models.a.n_ctx': 'models.NAME.context_window',
      'models.a.ctx_size': 'models.NAME.context_window', 'models.a.num_ctx': 'models.NAME.context_window', 'models.a.parallel': 'models.NAME.n_seq_max',
      'models.a.model': 'models.NAME.path', 'models.a.chat_template': 'models.NAME.jinja_file', 'models.a.temperature': 'models.NAME.sampling.temperature',
      'models.a.reasoning': 'models.NAME.chat_template_kwargs', 'models.a.n_gpu_layer': 'models.NAME.n_gpu_layers',
      'server.cors': 'server.allowed_origins', 'models.a.keep_alive': 'models.NAME.idle_unload', 'models.a.ctx': 'models.NAME.context_window',
      'server.threads': 'models.NAME.threads', 'models.a.max_model_len': 'models.NAME.context_window',
    };
    for (const [wrong, right] of Object.entries(theirs)) {
      const { stderr } = await run(['config', 'check', file('theirs.yaml', JSON.stringify(wrong.split('.').reduceRight((value, key) => ({ [key]: value }), 1)))]);
      const hint = /unknown key; the nearest known one is (\S+)/.exec(stderr)?.[1];
      assert.equal(hint, right, `${wrong}: ${stderr}`);
    }
  });

  test('a key given twice, a file that is no YAML, a file that is not there', async () => {
    const twice = file('twice.yaml', 'server:\n  drain_timeout: 1\n  drain_timeout: 2\n');
    complains(await run(['config', 'check', twice]), 2, /twice\.yaml:3/, /drain_timeout/);
    complains(await run(['config', 'check', file('broken.yaml', 'server:\n  listen: [1, 2\n')]), 2, /broken\.yaml:\d+/);
    complains(await run(['config', 'check', join(folder, 'none.yaml')]), 2, /none\.yaml/);
  });

  test('system prompt cache and incremental cache exclude each other', async () => {
    const path = file('both.yaml', `models:
  demo:
    path: ${demo}
    system_prompt_cache: true
    incremental_cache: true
`);
    complains(await run(['config', 'check', path]), 2, /system/i, /incremental/i);
  });

  test('serve refuses the same file the same way', async () => {
    const path = file('bad2.yaml', 'server:\n  listn: 127.0.0.1:8080\n');
    complains(await run(['serve', '--config', path]), 2, /bad2\.yaml:2/, /listn/);
  });
});

describe('configuration without --config', () => {
  // The file of a user, in the home folder.
  const homeWith = (text) => {
    const home = temporaryFolder();
    mkdirSync(join(home, '.config', 'hearth'), { recursive: true });
    writeFileSync(join(home, '.config', 'hearth', 'hearth.yaml'), text);
    return { HOME: home, HEARTH_CONFIG: undefined, XDG_CONFIG_HOME: undefined };
  };

  test('the user\'s file, over it the environment, over that the command line', async (t) => {
    const env = { ...homeWith(`models: {demo: {path: ${demo}, n_seq_max: 2, context_window: 512}}\n`),
      HEARTH_CONTEXT_WINDOW: '768', HEARTH_CACHE_MIN_TOKENS: '7' };
    for (const [args, slots] of [[[], 2], [['--set', 'n_seq_max=3'], 3]]) {
      const server = await serve({ t, args: ['--model', 'demo', ...args], env });
      assert.equal((await server.client.slots()).length, slots);
      const [model] = (await server.client.get('/v1/models')).json.data;
      assert.equal(model.meta.n_ctx, 768);
      await server.stop();
      assert.doesNotMatch(server.log, /is no key/);
    }
  });

  test('an unknown variable is named, with the nearest; a wrong value ends with 2; that of the API key is nobody\'s', async () => {
    const env = { HEARTH_CACHE_TIERS_DISK_PTH: '/tmp', HEARTH_API_KEY: 'secret', HEARTH_CACHE_TIERS_DISK_PATH: temporaryFolder() };
    const { code, stderr } = await run(['kv', 'ls'], { env });
    assert.equal(code, 0, stderr);
    assert.equal(stderr, 'hearth kv ls: the environment\'s HEARTH_CACHE_TIERS_DISK_PTH is no key of the configuration; the nearest is '
      + 'HEARTH_CACHE_TIERS_DISK_PATH: it is ignored\n');
    complains(await run(['kv', 'ls'], { env: { HEARTH_SERVER_MAX_CONNECTIONS: 'many' } }), 2, /HEARTH_SERVER_MAX_CONNECTIONS/, /server\.max_connections/, /many/);
  });

  test('a fault of a default file is told with its line, and HEARTH_CONFIG takes its place', async () => {
    const env = homeWith('server:\n  listn: 127.0.0.1:1\n');
    complains(await run(['kv', 'ls'], { env }), 2, /hearth\.yaml:2/, /listn/);
    const other = file('other.yaml', `cache: {tiers: {disk: {path: ${temporaryFolder()}}}}\n`);
    assert.equal((await run(['kv', 'ls'], { env: { ...env, HEARTH_CONFIG: other } })).code, 0);
    assert.equal((await run(['kv', 'ls', '--config', other], { env })).code, 0);
  });
});

test('the manual page of all keys is one that man can show', async () => {
  const { stdout } = await run(['config', 'manual', '--man']);
  assert.match(stdout, /^\.TH HEARTH\.YAML 5 /);
  assert.match(stdout, /^\.B models\.NAME\.context_window$/m);
});

test('config dump reads back and dumps the same again', async () => {
  const { code, stdout } = await run(['config', 'dump']);
  assert.equal(code, 0);
  for (const key of ['max_body_bytes: 33554432', 'drain_timeout: 10', 'context_window: 8192', 'n_batch: 2048',
    'max_decode_gap_ms: 250', 'queue_depth: 2', 'cache_min_tokens: 100']) {
    assert.ok(stdout.includes(key), `${key} is in the dump`);
  }
  const path = file('dump.yaml', stdout);
  const check = await run(['config', 'check', path]);
  assert.equal(check.code, 0, check.stderr);
  assert.match(stdout, /^ {2}# NAME:$/m, 'an example of a model');
  for (const command of ['serve', 'chat']) complains(await run([command, '--config', path]), 2, /dump\.yaml: no models are configured/, /--model/);
});

describe('model', () => {
  test('info tells what a file is', async () => {
    const { code, stdout } = await run(['model', 'info', demo]);
    assert.equal(code, 0);
    for (const pattern of [/llama/, /dense/, /2[,.]?048/, /Q8_0/i, /template/i, /\b3560448\b/]) {
      assert.match(stdout, pattern);
    }
  });

  test('info as JSON says the same', async () => {
    const { code, stdout } = await run(['model', 'info', demo, '--json']);
    assert.equal(code, 0);
    const info = JSON.parse(stdout);
    assert.deepEqual([info.file, info.architecture, info.kind, info.type, info.parameters > 1e6, info.context_length, info.chat_template],
      [demo, 'llama', 'dense', 'chat', true, 2048, true]);
    const text = (await run(['model', 'info', demo])).stdout;
    assert.deepEqual(Object.keys(info), text.trim().split('\n').map((line) => line.split(' ')[0]));
    assert.match((await run(['model', 'info', join(folder, 'none.gguf'), '--json'])).stderr, /none\.gguf/);
  });

  test('info tells the kinds apart', async () => {
    for (const [arch, kind] of [['qwen3', 'dense'], ['qwen3moe', 'moe'], ['mamba2', 'recurrent'], ['lfm2', 'hybrid']]) {
      const { code, stdout, stderr } = await run(['model', 'info', smallModel(arch, extra[arch])]);
      assert.equal(code, 0, stderr);
      assert.match(stdout, new RegExp(`\\b${arch}\\b`));
      assert.match(stdout, new RegExp(`\\b${kind}\\b`));
    }
  });
  const headless = { heads: undefined, 'kv-heads': undefined, 'head-dim': undefined, ff: undefined };
  const extra = { qwen3moe: { experts: 4 }, mamba2: headless };

  // 4 layers x 256 x (2 + 2) bytes = 4,096 bytes a token; 2,048 tokens in 4 slots.
  test('vram estimates the cells and tells what is allocated', async () => {
    const sets = ['--set', 'n_seq_max=4', '--set', 'context_window=2048'];
    const { code, stdout, stderr } = await run(['model', 'vram', demo, ...sets]);
    assert.equal(code, 0, stderr);
    const numbers = stdout.replace(/(\d)[,_'](?=\d{3})/g, '$1');
    assert.match(numbers, /\b4096\b|\b1024\b/, 'bytes a token');
    assert.match(numbers, /\b33554432\b|32(\.0+)? ?Mi?B/, 'bytes of all slots');
    assert.match(stdout, /alloc/i);
  });

  test('of a model for vectors info tells its type and pooling, and vram what its contexts take', async () => {
    const cases = [['bert', /embedding/, /mean|cls/], ['reranker', /rerank/, /rank/]];
    for (const [arch, type, pooling] of cases) {
      const path = smallModel(arch, { vocab: 'bert-bge', layers: 2, embd: 64, heads: 2, 'kv-heads': 2, ctx: 512, ff: 128 });
      const info = await run(['model', 'info', path]);
      assert.match(info.stdout, new RegExp(`^type +${type.source}$`, 'm'));
      assert.match(info.stdout, new RegExp(`^pooling +(${pooling.source})$`, 'm'));
      const { code, stdout, stderr } = await run(['model', 'vram', path, '--set', 'n_seq_max=2']);
      assert.equal(code, 0, stderr);
      assert.match(stdout, /2 contexts/);
      assert.match(stdout, /compute buffers +[1-9]\d* bytes/);
    }
  });
});

describe('fit', () => {
  const fit = async (path, ...args) => {
    const { code, stdout, stderr } = await run(['fit', path, '--json', ...args]);
    return { code, stderr, ...JSON.parse(stdout) };
  };
  // 300 MB: models of less than 256 MiB have the same defaults on every machine.
  const large = () => smallModel('llama', { embd: 1024, heads: 8, 'kv-heads': 1, 'head-dim': 32, ff: 12288, layers: 2, ctx: 16384 });

  test('says which choices fit, as text and as JSON', async () => {
    const { stdout } = await run(['fit', demo]);
    for (const pattern of [/trained for 2048 tokens/, /GiB free/, /a token +4096 bytes in f16 cells, 2176 bytes in q8_0/, /^\* +2048 +1 +f16\/f16/m,
      /--set context_window=2048 --set n_seq_max=1 --set cache_type_k=f16/]) assert.match(stdout, pattern);
    const { code, recommended, choices, weights_bytes: weights, token_bytes: token } = await fit(demo);
    assert.equal(code, 0);
    assert.deepEqual([recommended.context_window, recommended.n_seq_max, recommended.cells_bytes], [2048, 1, 2048 * 4096]);
    assert.equal(choices.length, 1);
    assert.ok(recommended.memory_bytes + recommended.gpu_bytes > weights + recommended.cells_bytes);
    assert.deepEqual(token, { f16: 4096, q8_0: 2176, q4_0: 1152 });
  });

  test('says how fast a reply can be at most: what a token reads, by what is read a second', async () => {
    const { read_bytes: bytes, read_rate: rate, weights_bytes: weights } = await fit(demo, '--set', 'threads=1');
    assert.ok(bytes > weights / 2 && bytes <= weights, `${bytes} of ${weights}`);
    assert.ok(rate > 1e8 && rate < 1e13, `${rate} bytes a second`);
    assert.match((await run(['fit', demo, '--set', 'threads=1'])).stdout, /^speed +at most [\d.e+]+ tokens\/s of one reply without drafts: each reads [\d.]+ MiB of weights/m);
    const experts = smallModel('qwen3moe', { type: 'f32', experts: 16, layers: 4 }); // of which a token passes through two
    const moe = await fit(experts);
    assert.ok(moe.read_bytes < moe.weights_bytes * 0.6, `${moe.read_bytes} of ${moe.weights_bytes}`);
  });

  test('what is set is kept, and what cannot fit is said, with what to do', async () => {
    const kept = await fit(demo, '--set', 'n_seq_max=3', '--set', 'context_window=1024');
    assert.deepEqual([kept.recommended.context_window, kept.recommended.n_seq_max], [1024, 3]);
    const sets = ['--set', 'rope_scaling=linear', '--set', 'context_window=8000000', '--set', 'n_seq_max=256'];
    const { code, recommended, reason } = await fit(demo, ...sets);
    assert.deepEqual([code, recommended], [1, null]);
    assert.match(reason, /8000000 tokens in 256 slots need [\d.]+ GiB .* lower context_window or n_seq_max/);
    const text = await run(['fit', demo, ...sets]);
    assert.equal(text.code, 1);
    assert.match(text.stdout, /does not fit/);
    assert.match(text.stdout, /lower context_window/);
  });

  test('serve takes the recommended values where nothing is set, and the log says so', async (t) => {
    const path = large();
    const { recommended } = await fit(path);
    assert.equal(recommended.context_window, 16384, 'as trained: the machine of the tests has room for it');
    const server = await serve({ t, model: path });
    await server.says(new RegExp(`defaults fit this machine .*context_window=${recommended.context_window} n_seq_max=${recommended.n_seq_max} `));
    assert.equal((await server.client.slots()).length, recommended.n_seq_max);
    const { data } = (await server.client.get('/v1/models')).json;
    assert.equal(data[0].meta.n_ctx, recommended.context_window);
    await server.stop();
  });

  test('what is set, for serve too, is as it was; and a small model has one slot', async (t) => {
    for (const [path, models, slots] of [[large(), { n_seq_max: 2, context_window: 1024 }, 2], [demo, {}, 1]]) {
      const server = await serve({ t, model: path, models });
      assert.equal((await server.client.slots()).length, slots);
      await server.stop();
    }
  });
});

describe('a file that is no model', () => {
  const commands = [['serve', '--port', '0', '--model'], ['chat', '--model'], ['fit'], ['model', 'info'], ['model', 'vram']];
  const cases = {
    'missing.gguf': () => join(folder, 'missing.gguf'),
    'empty.gguf': () => file('empty.gguf', ''),
    'text.gguf': () => file('text.gguf', 'This is no model.\n'.repeat(100)),
    'cut-head.gguf': () => cut('cut-head.gguf', 1000),
    'cut-data.gguf': () => cut('cut-data.gguf', 1500000),
  };
  const cut = (name, bytes) => {
    const path = join(folder, name);
    copyFileSync(demo, path);
    truncateSync(path, bytes);
    return path;
  };
  for (const [name, make] of Object.entries(cases)) {
    test(`${name}: one clear line and exit 1`, async () => {
      const path = make();
      for (const command of commands) {
        const result = await run([...command, path]);
        const lines = complains(result, 1, new RegExp(name.replace('.', '\\.')));
        assert.ok(lines.length <= (command[0] === 'serve' ? 8 : 1), `${command.join(' ')}: ${result.stderr}`);
      }
    });
  }

  test('a folder is no model either', async () => {
    complains(await run(['serve', '--port', '0', '--model', folder]), 1, new RegExp(folder));
  });
});

test('serve on a port that is taken exits 1 and names it', async () => {
  const holder = createServer();
  await new Promise((resolve) => { holder.listen(0, '127.0.0.1', resolve); });
  const { port } = holder.address();
  complains(await run(['serve', '--port', String(port)]), 1, new RegExp(`\\b${port}\\b`), /use|bind|listen/i);
  holder.close();
});

test('memory that cannot be had is refused at load, with the numbers', async () => {
  const result = await run(['serve', '--port', '0', '--set', 'models.demo.context_window=2048',
    '--set', 'models.demo.n_seq_max=200000000']);
  assert.ok([1, 2].includes(result.code), `exit ${result.code}: ${result.stderr}`);
  assert.match(result.stderr, /\d/);
});

describe('the demo model', () => {
  const user = (content) => ({ role: 'user', content });
  const first = [user('My name is Ottilie.')];
  const secondTurn = async (server) => {
    const { message } = (await server.client.chat({ messages: first })).choices[0];
    return server.client.chat({ messages: [...first, message, user('What is my name?')] });
  };
  const start = (t, args) => serve({ t, args: ['--model', demo, ...args] });

  test('the same file behaves the same however it is named, and says why a short prompt is computed again', async (t) => {
    const answers = [];
    for (const args of [['--set', 'cache_min_tokens=100', '--set', 'n_seq_max=1'], []]) {
      const server = await serve({ t, args: args.length > 0 ? args : ['--model', demo] });
      const { usage, timings } = await secondTurn(server);
      const slots = (await server.client.slots()).length;
      await server.says(/not reused: fewer tokens than cache_min_tokens id=\S+ tokens=\d+ cache_min_tokens=100/);
      answers.push([slots, usage.prompt_tokens_details.cached_tokens, timings.not_reused]);
      await server.stop();
    }
    assert.deepEqual(answers, [[1, 0, { tokens: 31, reason: 'cache_min_tokens' }], [1, 0, { tokens: 31, reason: 'cache_min_tokens' }]]);
  });

  test('what `make run` and the README say is what the second turn says', async (t) => {
    const flags = /^\tbuild\/bin\/hearth serve (.*)$/m.exec(readFileSync(join(source, 'Makefile'), 'utf8'))[1].split(' ');
    const readme = readFileSync(join(source, 'README.md'), 'utf8');
    const told = (name) => Number(new RegExp(`"${name}": (\\d+)`).exec(readme)[1]);
    const server = await start(t, flags);
    const { usage, timings, choices } = await secondTurn(server);
    assert.match(choices[0].message.content, /Ottilie/);
    assert.deepEqual([usage.prompt_tokens, usage.completion_tokens, usage.prompt_tokens_details.cached_tokens, timings.cache_n, timings.prompt_n],
      ['prompt_tokens', 'completion_tokens', 'cached_tokens', 'cache_n', 'prompt_n'].map(told));
    assert.equal(timings.not_reused, undefined);
    await server.stop();
  });
});

test('arguments of the template have defaults that a request overrides one by one', async (t) => {
  const template = file('arguments.jinja', '{{ mood }} {{ enable_thinking }} {{ messages[0].content }}');
  const path = file('arguments.yaml', `models:
  demo: {path: ${demo}, jinja_file: ${template}, chat_template_kwargs: {mood: "on", enable_thinking: false}}
`);
  const server = await serve({ t, args: ['--config', path] });
  const prompt = async (more) => (await server.client.ask('/apply-template', { messages: [{ role: 'user', content: 'Hi' }], ...more })).prompt;
  assert.equal(await prompt({}), 'on False Hi');
  assert.equal(await prompt({ chat_template_kwargs: { mood: 'gay' } }), 'gay False Hi');
  assert.equal(await prompt({ enable_thinking: true }), 'on True Hi');
  await server.stop();
  complains(await run(['serve', '--port', '0', '--set', 'chat_template_kwargs={messages: []}']), 1, /chat_template_kwargs\.messages/);
  complains(await run(['serve', '--port', '0', '--set', 'chat_template_kwargs=quiet']), 2, /chat_template_kwargs: expects a map/);
});

test('a configuration file is served', async (t) => {
  const path = file('serve.yaml', `models:
  little:
    path: ${demo}
    context_window: 512
    n_seq_max: 3
  other:
    path: ${smallModel('qwen3')}
    context_window: 256
`);
  const server = await serve({ t, args: ['--config', path] });
  const { json } = await server.client.get('/v1/models');
  assert.deepEqual(json.data.map((model) => model.id).sort(), ['little', 'other']);
  const slots = await server.client.slots();
  assert.equal(slots.filter((slot) => slot.model === 'little').length, 3);
  for (const model of ['little', 'other']) {
    const reply = await server.client.complete({ model, prompt: 'My name is', max_tokens: 3 });
    assert.equal(reply.model, model);
  }
  await server.stop();
});

test('the request that serve says to try is one that its model answers', async (t) => {
  const vectors = { vocab: 'bert-bge', layers: 2, embd: 64, heads: 2, 'kv-heads': 2, ctx: 512, ff: 128 };
  for (const model of [undefined, smallModel('bert', vectors), smallModel('reranker', vectors), bareModel()]) {
    const server = await serve({ t, model });
    const line = await server.whileAlive('the line is printed', () => /^ +try +curl (.*)$/m.exec(server.log)?.[1], 20);
    const answer = execFileSync('sh', ['-c', `curl -s -f ${line}`], { encoding: 'utf8' });
    assert.equal(JSON.parse(answer).error, undefined, answer);
    await server.stop();
  }
});

describe('chat', () => {
  test('it answers from the demo model and remembers the name', async () => {
    const { code, stdout, stderr } = await run(['chat'], { input: 'My name is Ottilie.\nWhat is my name?\n' });
    assert.equal(code, 0, stderr);
    const [, ...later] = stdout.split('Ottilie');
    assert.ok(later.length >= 1, `the name is in the answers: ${stdout}`);
    assert.match(stdout.trim().split('\n').at(-1) + stdout, /Ottilie/);
  });

  test('reasoning is no part of what is said: piped out there is the content alone', async () => {
    const template = file('thinks.jinja', `{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.reasoning_content %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif %}`);
    const { code, stdout, stderr } = await run(
      ['chat', '--set', `models.demo.jinja_file=${template}`, '--set', 'models.demo.sampling.temperature=0'],
      { input: 'Who are you?\n' });
    assert.equal(code, 0, stderr);
    assert.equal(stdout.trim(), '', 'the model never ends its thoughts');
  });

  test('nothing to say is fine', async () => {
    const { code } = await run(['chat'], { input: '' });
    assert.equal(code, 0);
  });

  test('a model without a template is talked to in ChatML, and the log says so', async () => {
    const { code, stderr } = await run(['chat', '--model', bareModel(), '--set', 'context_window=64', '--log-level', 'warn'], { input: 'Hello\n' });
    assert.equal(code, 0, stderr);
    assert.match(stderr, /no chat template: chats are written in ChatML/);
  });

  test('what is piped out has no terminal control sequences', async () => {
    const { stdout } = await run(['chat'], { input: 'Who are you?\n' });
    assert.ok(!stdout.includes('\u001b') && !stdout.includes('\r'));
    assert.match(stdout, /hearth|model|assistant/i);
  });

  const patient = ['--set', 'sampling.temperature=0', '--set', 'threads=1'];
  // More than a terminal's line may have, and more tokens than the window; what a terminal keeps of it would fit.
  const long = 'hello '.repeat(5000);

  test('a line from a pipe is read whole, however long', async () => {
    const result = await run(['chat', ...patient], { input: `${long}\n` });
    const [line] = complains(result, 1, /request \((\d+) tokens\) exceeds the available context size/);
    assert.ok(Number(/\((\d+) tokens/.exec(line)[1]) > 5000, line);
  });

  test('a line of more than 16 MiB is refused', async () => {
    complains(await run(['chat', ...patient], { input: 'x'.repeat((16 << 20) + 5000) }), 1, /a line has more than 16 MiB/);
  });

  test('a line that is typed or pasted is read whole, and can be edited', async (t) => {
    const home = temporaryFolder();
    const child = spawn('script', ['-qec', `${hearth} chat ${patient.join(' ')}`, '/dev/null'], { env: { ...process.env, HOME: home } });
    t.after(() => child.kill('SIGKILL'));
    let shown = '';
    child.stdout.setEncoding('utf8');
    child.stdout.on('data', (text) => { shown += text; });
    const ended = new Promise((resolve) => { child.on('close', resolve); });
    const prompted = (n) => until('it asks', () => shown.split('> ').length > n, { seconds: 60 });
    await prompted(1);
    child.stdin.write(`${long}\r`);
    await until('all of it is refused', () => /request \(\d+ tokens\) exceeds/.test(shown), { seconds: 60 });
    await prompted(2);
    child.stdin.write('My name is Otto\u007filie.\r');
    await prompted(3);
    child.stdin.write('What is my name?\r');
    await until('it remembers', () => /your name is ottilie/i.test(shown), { seconds: 60 });
    child.stdin.write('/exit\r');
    assert.equal(await within(30, 'it ends', ended), 0);
  });

  test('beside a server nothing is amiss: what that stored is read', async (t) => {
    const disk = temporaryFolder();
    const question = 'Who are you? '.repeat(60).trim(); // long enough to be read rather than computed
    const holder = await serve({ t, set: { 'cache.tiers.disk.path': disk }, models: { cache_min_tokens: 0 } });
    await holder.client.chat({ messages: [{ role: 'user', content: question }], max_tokens: 4 });
    await saved(holder);
    const shared = ['chat', ...patient, '--set', 'cache_min_tokens=0', '--set', `cache.tiers.disk.path=${disk}`];
    const quiet = await run(shared, { input: `${question}\n` });
    assert.deepEqual([quiet.code, quiet.stderr], [0, '']);
    const told = await run([...shared, '--log-level', 'info'], { input: `${question}\n` });
    assert.match(told.stderr, / info +store: restored .*tokens=\d+ .*tier=disk/);
    assert.match(told.stderr, / info +store: a tier is only read tier=disk reason=.*another process/);
    await holder.stop();
  });
});

test('output that cannot be written is a failure, with a line that says so', async () => {
  const commands = [['version'], ['config', 'dump'], ['kv', 'ls'], ['model', 'info', demo], ['--help'], ['chat']];
  for (const command of commands) {
    const words = command.map((word) => `'${word}'`).join(' ');
    const { status, stderr } = spawnSync('sh', ['-c', `echo 'Who are you?' | '${hearth}' ${words} > /dev/full`],
      { encoding: 'utf8', env: { ...process.env, HOME: temporaryFolder() } });
    assert.equal(status, 1, `${words}: ${stderr}`);
    assert.match(stderr, /cannot write to standard output(: No space left on device)?\n$/);
  }
});

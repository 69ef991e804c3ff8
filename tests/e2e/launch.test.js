// `hearth launch`: what an agent is told of a server, and the server that is started where none answers. The agents here
// are a script under their names, which says what it was given and sends one request as the real one does.

import { before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { demo, hearth } from './lib/models.js';
import { run, serve, temporaryFolder } from './lib/server.js';
import { until } from './lib/wait.js';

const agents = ['claude', 'codex', 'opencode', 'qwen', 'pi', 'copilot', 'cline', 'droid', 'kimi', 'vibe', 'hermes', 'openclaw', 'aider'];

// Prints {words, variables, file, status}: the status of a request to where it was told that the server is.
const script = `#!${process.execPath}
const { env } = process;
const words = process.argv.slice(2);
const option = (name) => words.find((word) => word.startsWith(name + '='))?.slice(name.length + 1);
const after = (name) => words[words.indexOf(name) + 1];
const path = { pi: () => env.PI_CODING_AGENT_DIR + '/models.json', cline: () => env.CLINE_PROVIDER_SETTINGS_PATH, droid: () => after('--settings'),
  openclaw: () => env.OPENCLAW_CONFIG_PATH }[require('path').basename(process.argv[1])];
const file = path && JSON.parse(require('fs').readFileSync(path(), 'utf8'));
const opencode = env.OPENCODE_CONFIG_CONTENT && JSON.parse(env.OPENCODE_CONFIG_CONTENT);
const told = {
  claude: () => [env.ANTHROPIC_BASE_URL + '/v1/messages', env.ANTHROPIC_MODEL, env.ANTHROPIC_AUTH_TOKEN],
  codex: () => [JSON.parse(option('model_providers.hearth.base_url')) + '/responses', JSON.parse(option('model')), env.HEARTH_API_KEY],
  opencode: () => [opencode.provider.hearth.options.baseURL + '/chat/completions', opencode.model.replace('hearth/', ''), opencode.provider.hearth.options.apiKey],
  qwen: () => [env.OPENAI_BASE_URL + '/chat/completions', env.OPENAI_MODEL, env.OPENAI_API_KEY],
  pi: () => [file.providers.hearth.baseUrl + '/chat/completions', words[words.indexOf('--model') + 1], env[file.providers.hearth.apiKey]],
  copilot: () => [env.COPILOT_PROVIDER_BASE_URL + '/chat/completions', env.COPILOT_MODEL, env.COPILOT_PROVIDER_BEARER_TOKEN],
  cline: () => {
    const { baseUrl, model, apiKey } = file.providers[file.lastUsedProvider].settings;
    return [baseUrl + '/chat/completions', model, apiKey];
  },
  droid: () => {
    const { baseUrl, apiKey } = file.customModels[0];
    return [baseUrl + '/chat/completions', file.model.replace('custom:', ''), apiKey];
  },
  kimi: () => [env.KIMI_MODEL_BASE_URL + '/chat/completions', env.KIMI_MODEL_NAME, env.KIMI_MODEL_API_KEY],
  vibe: () => {
    const model = JSON.parse(env.VIBE_MODELS).find(({ alias }) => alias === env.VIBE_ACTIVE_MODEL);
    const provider = JSON.parse(env.VIBE_PROVIDERS).find(({ name }) => name === model.provider);
    return [provider.api_base + '/chat/completions', model.name, env[provider.api_key_env_var]];
  },
  hermes: () => [env.LM_BASE_URL + '/chat/completions', after('--model'), env.LM_API_KEY],
  openclaw: () => {
    const [provider, model] = file.agents.defaults.model.primary.split('/');
    const { baseUrl, apiKey } = file.models.providers[provider];
    return [baseUrl + '/chat/completions', model, apiKey];
  },
  aider: () => [after('--openai-api-base') + '/chat/completions', after('--model').replace('openai/', ''), env.AIDER_OPENAI_API_KEY],
}[require('path').basename(process.argv[1])];
const [url, model, key] = told();
const hello = [{ role: 'user', content: 'Who are you?' }];
const body = url.endsWith('/responses') ? { input: 'Who are you?', max_output_tokens: 4 } : { messages: hello, max_tokens: 4 };
const headers = { 'Content-Type': 'application/json', Authorization: 'Bearer ' + key };
fetch(url, { method: 'POST', headers, body: JSON.stringify({ model, ...body }) }).then((response) => {
  console.log(JSON.stringify({ words, model, url, key, status: response.status }));
  if (words.includes('--wait')) setInterval(() => {}, 1000);
  else process.exitCode = Number(words.at(-1)) || 0;
});
`;

let env;
before(() => {
  const folder = temporaryFolder();
  mkdirSync(join(folder, 'bin'));
  for (const agent of agents) writeFileSync(join(folder, 'bin', agent), script, { mode: 0o755 });
  env = { HOME: folder, PATH: `${join(folder, 'bin')}:${process.env.PATH}` };
});

const said = ({ stdout }) => JSON.parse(stdout.trim().split('\n').at(-1));

const freePort = () => new Promise((resolve) => {
  const server = createServer().listen(0, '127.0.0.1', () => {
    const { port } = server.address();
    server.close(() => resolve(port));
  });
});

const isDown = (url) => fetch(`${url}/health`).then(() => false, () => true);

describe('on a server that is there', () => {
  test('each agent is told where it is, what its model is called and which key to send; its own words follow', async (t) => {
    const keys = join(temporaryFolder(), 'keys');
    writeFileSync(keys, 'a-key-of-many-letters-0 me\n', { mode: 0o600 });
    const server = await serve({ t, set: { 'server.api_keys_file': keys }, access: { key: 'a-key-of-many-letters-0' } });
    const { url } = server;
    for (const agent of agents) {
      const its = { ...env, HEARTH_API_KEY: 'a-key-of-many-letters-0' };
      const result = await run(['launch', agent, '--url', `${url}/`, '--', '--own', "it's", '3'], { env: its });
      const { words, model, status, key } = said(result);
      assert.deepEqual([model, status, key, result.code], ['demo', 200, its.HEARTH_API_KEY, 3], agent);
      assert.deepEqual(words.slice(-3), ['--own', "it's", '3'], agent);
      const { stdout } = await run(['launch', agent, '--print', '--url', url, '--', "it's"], { env: its });
      const printed = execFileSync('sh', ['-c', stdout], { env: { ...process.env, ...env }, encoding: 'utf8' });
      assert.equal(said({ stdout: printed }).status, 200, `${agent}:\n${stdout}`);
      assert.equal(said({ stdout: printed }).words.at(-1), "it's");
    }
    const other = await run(['launch', 'claude', '--url', url, '--model', 'nobody'], { env: { ...env, HEARTH_API_KEY: 'a-key-of-many-letters-0' } });
    assert.equal(other.code, 1);
    assert.match(other.stderr, /no chat model nobody/);
    const stranger = await run(['launch', 'claude', '--url', url], { env });
    assert.equal(stranger.code, 1);
    assert.match(stranger.stderr, /HEARTH_API_KEY/);
    await server.stop();
  });
});

describe('on a llama-server', () => {
  const printed = async (t, agent, meta) => {
    const list = { data: [{ id: 'theirs', meta }] };
    const other = createHttpServer((request, response) => response.end(JSON.stringify(list))).listen(0, '127.0.0.1');
    t.after(() => other.close());
    await until('it listens', async () => other.address() !== null);
    return (await run(['launch', agent, '--print', '--url', `http://127.0.0.1:${other.address().port}`], { env })).stdout;
  };

  test('the window is read where it has it', async (t) => {
    for (const [agent, text] of [['pi', /"contextWindow": ?24576/], ['copilot', /MAX_PROMPT_TOKENS='18432'[^]*MAX_OUTPUT_TOKENS='6144'/],
      ['droid', /"maxContextLimit": ?24576/], ['kimi', /MAX_CONTEXT_SIZE='24576'/], ['vibe', /"max_context_length": ?24576/],
      ['openclaw', /"contextWindow": ?24576/]])
      assert.match(await printed(t, agent, { n_ctx: 24576, n_ctx_train: 32768 }), text, agent);
  });

  test('none is named where it has none: those who want a positive one keep their own', async (t) => {
    for (const agent of ['copilot', 'droid', 'kimi', 'vibe', 'openclaw'])
      assert.doesNotMatch(await printed(t, agent, {}), /max_?(context|output|prompt|tokens)|contextWindow/i, agent);
  });
});

describe('where no server answers', () => {
  const options = async (url) => ['--url', url, '--model', demo, '--set', 'threads=1', '--set', 'cache.tiers.disk.quota_mb=0'];

  test('one is started, serves the model that was named, and ends with the agent', async () => {
    const url = `http://127.0.0.1:${await freePort()}`;
    const result = await run(['launch', 'qwen', ...await options(url)], { env });
    assert.deepEqual([said(result).status, said(result).model, result.code], [200, 'demo', 0], result.stderr);
    assert.match(result.stderr, /starting a server/);
    assert.match(result.stderr, /begins with some \d+ tokens, and the window of demo has \d+/);
    assert.ok(await isDown(url));
  });

  test('it ends too when launch is ended', async (t) => {
    const url = `http://127.0.0.1:${await freePort()}`;
    const child = spawn(hearth, ['launch', 'claude', ...await options(url), '--', '--wait'], { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'ignore'] });
    t.after(() => child.kill('SIGKILL'));
    let output = '';
    child.stdout.on('data', (text) => { output += text; });
    await until('the agent has been answered', async () => output.includes('"status":200'), { seconds: 30 });
    child.kill('SIGTERM');
    await until('the server has ended', async () => isDown(url), { seconds: 30 });
  });

  test('what went wrong is said', async () => {
    const url = `http://127.0.0.1:${await freePort()}`;
    const rows = [
      [['launch', 'claud'], 2, /claud.*claude, codex, opencode, qwen, pi, copilot/],
      [['launch', 'claude', '--print', '--url', url], 1, /no server answers at http/],
      [['launch', 'claude', '--url', 'http://192.0.2.1:1', '--print'], 1, /no server answers/],
      [['launch', 'claude', '--url', url, '--model', '/nowhere.gguf'], 1, /could not be started.*serve\.log/],
      [['launch', 'pi', '--print=yes', '--url', url], 2, /--print takes no value/],
    ];
    for (const [args, code, message] of rows) {
      const result = await run(args, { env });
      assert.equal(result.code, code, result.stderr);
      assert.match(result.stderr, message);
    }
    assert.match(readFileSync(join(env.HOME, '.local/share/hearth/serve.log'), 'utf8'), /nowhere\.gguf/);
    const bare = await run(['launch', 'claude', ...await options(url)], { env: { HOME: env.HOME, PATH: '/nowhere' } });
    assert.equal(bare.code, 127);
    assert.match(bare.stderr, /cannot run claude/);
  });
});

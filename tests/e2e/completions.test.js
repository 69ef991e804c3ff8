// Completions of shells: bash's are used in a real bash, those of zsh and fish in theirs.

import { before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { hearth } from './lib/models.js';
import { run, temporaryFolder } from './lib/server.js';
import { Terminal } from './lib/terminal.js';

const folder = temporaryFolder();
const files = { bash: join(folder, 'hearth.bash'), zsh: join(folder, '_hearth'), fish: join(folder, 'hearth.fish') };
before(async () => {
  for (const [shell, path] of Object.entries(files)) {
    const { code, stdout, stderr } = await run(['completions', shell]);
    assert.equal(code, 0, stderr);
    writeFileSync(path, stdout);
  }
});

// What the help lists, of the program and all its commands: {'kv ls': {options, commands}}.
async function helps(command = []) {
  const { stdout } = await run([...command, '--help']);
  const list = (heading, pattern) => (new RegExp(`^${heading}:\n((?: .*\n)+)`, 'm').exec(stdout)?.[1] ?? '')
    .split('\n').map((line) => pattern.exec(line)?.[1]).filter(Boolean);
  const commands = list('Commands', /^ {2}(\S+) /);
  const found = { [command.join(' ')]: { commands, options: list('Options', /^ {2}(--\S+)/) } };
  for (const name of commands) Object.assign(found, await helps([...command, name]));
  return found;
}

// What bash offers for the last of these words, split as bash splits them.
function offers(...words) {
  const quoted = words.map((word) => `'${word}'`).join(' ');
  const script = `. "${files.bash}"; COMP_WORDS=(hearth ${quoted}); COMP_CWORD=${words.length}; _hearth; printf '%s\\n' "\${COMPREPLY[@]}"`;
  return execFileSync('bash', ['--norc', '--noprofile', '-c', script], { cwd: folder, encoding: 'utf8' }).split('\n').filter(Boolean);
}

describe('bash', () => {
  test('every command and every option of its help is offered, and nothing else', async () => {
    const all = await helps();
    assert.ok(Object.keys(all).length > 15, Object.keys(all).join(', '));
    for (const [path, { commands, options }] of Object.entries(all)) {
      const words = path.split(' ').filter(Boolean);
      if (commands.length > 0) assert.deepEqual(offers(...words, ''), commands, path);
      assert.deepEqual(offers(...words, '-').sort(), [...options, '--help'].sort(), path);
    }
  });

  test('values are words, files or keys, as the option wants', () => {
    mkdirSync(join(folder, 'models'), { recursive: true });
    assert.deepEqual(offers('serve', '--log-level', ''), ['error', 'warn', 'info', 'debug']);
    assert.deepEqual(offers('serve', '--log-level', '=', 'd'), ['debug'], 'after an equals sign too');
    assert.deepEqual(offers('serve', '--log-level', '='), ['error', 'warn', 'info', 'debug']);
    assert.deepEqual(offers('cache', 'explain', '--as', 'm'), ['messages']);
    assert.deepEqual(offers('launch', 'c'), ['claude', 'codex', 'copilot', 'cline']);
    assert.deepEqual(offers('completions', ''), ['bash', 'zsh', 'fish']);
    assert.deepEqual(offers('serve', '--model', 'mod'), ['models']);
    assert.deepEqual(offers('model', 'info', 'mod'), ['models']);
    assert.deepEqual(offers('serve', '--set', 'n_seq_'), ['n_seq_max=', 'n_seq_spare=']);
    assert.deepEqual(offers('serve', '--set', 'server.tls'), ['server.tls_cert=', 'server.tls_key=']);
    for (const words of [['serve', '--port', ''], ['serve', '--set', 'n_seq_max', '='], ['serve', '--set', 'n_seq_max', '=', '4'],
      ['launch', 'claude', '--', '-'], ['nonsense', ''], ['kv', 'show', '']]) assert.deepEqual(offers(...words), words[0] === 'nonsense' ? offers('') : [], words.join(' '));
  });

  test('on a terminal the tabulator completes', async (t) => {
    const terminal = await Terminal.open(t, ['version'], { then: "PS1='$ ' bash --norc --noprofile -i" });
    await terminal.shows(/^\$ *$/m);
    terminal.say(`PATH=${dirname(hearth)}:$PATH; . ${files.bash}; clear`);
    terminal.type('hearth ser\t');
    await terminal.shows(/\$ hearth serve *$/m);
    terminal.type('--log-l\tdeb\t--set context_w\t');
    await terminal.shows(/\$ hearth serve --log-level debug --set context_window= *$/m);
  });
});

// In a terminal of its own, since completion is asked of a shell that reads lines.
test('zsh reads its file, and completes with it', async (t) => {
  execFileSync('zsh', ['-n', files.zsh]);
  const terminal = await Terminal.open(t, ['version'], { then: "PS1='$ ' zsh -f -i" });
  await terminal.shows(/^\$ *$/m);
  terminal.say(`PATH=${dirname(hearth)}:$PATH; fpath=(${folder} $fpath); autoload -Uz compinit; compinit -u -D; clear`);
  terminal.type('hearth ser\t');
  await terminal.shows(/\$ hearth serve *$/m);
  terminal.type('--log-l\tdeb\t--set context_w\t');
  await terminal.shows(/\$ hearth serve --log-level[ =]debug --set[ =]context_window= *$/m);
});

test('fish reads its file, and completes with it', () => {
  const fish = (script) => execFileSync('fish', ['--no-config', '-c', script], { encoding: 'utf8', env: { ...process.env, HOME: folder } });
  fish(`fish -n ${files.fish}`);
  const completes = (line) => fish(`source ${files.fish}; complete -C '${line}'`).split('\n').filter(Boolean).map((text) => text.split('\t')[0]);
  assert.deepEqual(completes('hearth ser'), ['serve']);
  assert.deepEqual(completes('hearth kv l'), ['ls']);
  assert.deepEqual(completes('hearth serve --log-level d'), ['debug']);
  assert.deepEqual(completes('hearth serve --log-'), ['--log-format', '--log-level']);
  assert.deepEqual(completes('hearth serve --set n_seq_'), ['n_seq_max=', 'n_seq_spare=']);
  assert.deepEqual(completes('hearth launch co'), ['codex', 'copilot']);
  assert.deepEqual(completes('hearth version ser'), []);
});

test('a shell that there is no completion for', async () => {
  const { code, stderr } = await run(['completions', 'tcsh']);
  assert.equal(code, 2);
  assert.match(stderr, /tcsh: there are bash, zsh and fish/);
});

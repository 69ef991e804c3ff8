// hearth chat: a question as an argument, through a pipe, and a conversation on a terminal.

import { describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { constants } from 'node:os';
import { join } from 'node:path';
import { png } from './lib/media.js';
import { demo, hearth, projectorFor, smallModel } from './lib/models.js';
import { run, temporaryFolder } from './lib/server.js';
import { Terminal } from './lib/terminal.js';
import { until, within } from './lib/wait.js';

const steady = ['--set', 'sampling.temperature=0', '--set', 'threads=1'];
// What a function returns once it returns the same three times in a row.
const steadily = async (value) => {
  let last, times = 0;
  await until('it stays the same', () => {
    const now = value();
    times = now === last ? times + 1 : 0;
    last = now;
    return times >= 3;
  });
  return last;
};

const bitOf = (signal) => 1n << BigInt(constants.signals[signal] - 1);
const undecorated = (text) => assert.ok(!/[\u001b\r]|^> |tokens\/s/m.test(text), JSON.stringify(text));

describe('one question', () => {
  test('as an argument', async () => {
    const { code, stdout, stderr } = await run(['chat', 'My name is Ottilie.', ...steady]);
    assert.deepEqual([code, stderr], [0, '']);
    assert.equal(stdout, 'Nice to meet you, Ottilie.\n');
  });

  test('what is piped in comes after the argument, all of it in one message', async () => {
    const { code, stdout } = await run(['chat', 'My name is Ottilie.', ...steady], { input: 'I live here.\nWhat is my name?\n' });
    assert.equal(code, 0);
    assert.equal(stdout.trimEnd().split('\n').length, 1, stdout);
    const long = await run(['chat', 'Count these.', ...steady], { input: 'hello '.repeat(5000) });
    assert.equal(long.code, 1);
    assert.match(long.stderr, /request \(\d{4,} tokens\) exceeds/);
  });

  test('an argument is never a command', async () => {
    const { code, stdout } = await run(['chat', '/exit', ...steady]);
    assert.equal(code, 0);
    assert.match(stdout, /\w/);
  });

  test('lines of a pipe are messages of one conversation', async () => {
    const { code, stdout } = await run(['chat', ...steady], { input: 'My name is Ottilie.\nWhat is my name?\n' });
    assert.equal(code, 0);
    assert.equal(stdout, 'Nice to meet you, Ottilie.\nYour name is Ottilie.\n');
  });

  test('SIGINT ends it with 130', async (t) => {
    const child = spawn(hearth, ['chat', 'Why?', ...steady], { stdio: ['pipe', 'pipe', 'pipe'], env: { ...process.env, HOME: temporaryFolder() } });
    t.after(() => child.kill('SIGKILL'));
    // SIGINT alone: while a thread is started, all signals are blocked for a moment, and SIGINT then kills as ever.
    const blocked = () => BigInt(`0x${/^SigBlk:\s+(\w+)/m.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8'))[1]}`);
    const takes = (mask) => (mask & bitOf('SIGINT')) !== 0n && (mask & bitOf('SIGUSR1')) === 0n;
    await until('it takes signals', () => takes(blocked())); // its input is open: it cannot have answered
    child.kill('SIGINT');
    const code = await within(30, 'it ends', new Promise((resolve) => { child.on('close', resolve); }));
    assert.ok([1, 130].includes(code), `${code}`); // 1: while it loaded the model
  });
});

// A model of random weights never ends a reply: it is as long as the window.
const endlessly = ['--model', smallModel('qwen3'), '--set', 'context_window=16384'];

test('a signal during one of many piped questions ends all of them, with 130', async (t) => {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGQUIT']) {
    const child = spawn(hearth, ['chat', ...steady, ...endlessly], { stdio: ['pipe', 'pipe', 'ignore'], env: { ...process.env, HOME: temporaryFolder() } });
    t.after(() => child.kill('SIGKILL'));
    child.stdin.end('Why?\n'.repeat(100));
    await once(child.stdout, 'data');
    child.stdout.resume();
    child.kill(signal);
    assert.deepEqual(await within(30, 'it ends', once(child, 'close')), [130, null], signal);
  }
});

test('a reader that goes away ends it, and is said', async (t) => {
  const child = spawn(hearth, ['chat', 'Why?', ...steady, ...endlessly], { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, HOME: temporaryFolder() } });
  t.after(() => child.kill('SIGKILL'));
  let said = '';
  child.stderr.on('data', (text) => { said += text; });
  await once(child.stdout, 'data');
  child.stdout.destroy();
  const [code, signal] = await within(30, 'it ends', once(child, 'close'));
  assert.deepEqual([code, signal], [1, null]);
  assert.match(said, /cannot write to standard output/);
});

describe('on a terminal', () => {
  const open = (t, options, ...more) => Terminal.open(t, ['chat', ...steady, ...more], options);

  test('lines are edited, Ctrl-C clears what is half typed, and /exit gives the terminal back', async (t) => {
    const terminal = await open(t, { then: "stty -a | grep -o -- '-*echo \\|-*icanon' | tr '\\n' ' '" });
    await terminal.asks();
    terminal.type('half a linë');
    await terminal.shows(/> half a linë$/);
    terminal.press('C-c');
    await terminal.shows(/\^C\n>$/);
    terminal.type('y name is Otilie.');
    terminal.press('C-a');
    terminal.type('M');
    terminal.press('C-e', 'Left', 'Left', 'Left', 'Left', 'Left');
    terminal.type('t');
    terminal.press('Enter');
    await terminal.shows(/\nNice to meet you, Ottilie\.\n.*tokens\/s\n>$/);
    terminal.say('/exit');
    await terminal.shows(/exit 0\n *icanon *echo/);
  });

  test('Ctrl-C on an empty line ends only when it comes twice; Ctrl-D ends', async (t) => {
    const terminal = await open(t);
    await terminal.asks();
    terminal.press('C-c');
    await terminal.shows(/Ctrl-C again, Ctrl-D or \/exit ends\n>$/);
    terminal.say('My name is Ottilie.');
    await terminal.shows(/Nice to meet you, Ottilie\.\n.*\n>$/);
    terminal.press('C-c');
    await terminal.shows(/tokens\/s\n> \^C\nCtrl-C again.*\n>$/);
    terminal.press('C-c');
    await terminal.shows(/exit 0/);
    const other = await open(t);
    await other.asks();
    other.press('C-d');
    await other.shows(/exit 0/);
  });

  test('a paste of 100 KB with line ends is one message, and arrives whole', async (t) => {
    const terminal = await open(t);
    await terminal.asks();
    const text = Array.from({ length: 2500 }, (_, i) => `line ${i} of a text that was pasted by a user`).join('\n');
    assert.ok(text.length > 100_000);
    terminal.paste(text);
    await terminal.shows(new RegExp(`> \\[paste 1: ${text.length} bytes, 2500 lines\\]$`));
    terminal.press('Enter');
    const [, bytes] = await terminal.shows(/\(\d+ tokens or more, in (\d+) bytes\) exceeds/);
    assert.ok(Number(bytes) >= text.length && Number(bytes) < text.length + 500, bytes);
    await terminal.asks();
    assert.equal(terminal.shown().match(/exceeds the available context size/g).length, 1);
  });

  test('a line that ends in a backslash goes on, as does Alt-Enter', async (t) => {
    const home = temporaryFolder();
    const terminal = await open(t, { home });
    await terminal.asks();
    terminal.say('My name\\');
    await terminal.shows(/\n\.\.\.$/);
    terminal.type('is');
    terminal.press('M-Enter');
    terminal.say('Ottilie.');
    await terminal.shows(/tokens\/s\n>$/);
    const kept = readFileSync(join(home, '.local/state/hearth/chat_history'), 'utf8');
    assert.match(kept, /^My\\040name\\012is\\012Ottilie\.$/m);
  });

  test('the history comes back next time, in a file of the user\'s alone', async (t) => {
    const home = temporaryFolder();
    const first = await open(t, { home });
    await first.asks();
    first.say('My name is Ottilie.');
    await first.shows(/Nice to meet you/);
    await first.asks();
    first.press('C-d');
    await first.shows(/exit 0/);
    const path = join(home, '.local/state/hearth/chat_history');
    assert.equal(statSync(path).mode & 0o777, 0o600);
    assert.equal(statSync(join(path, '..')).mode & 0o777, 0o700);
    const before = readFileSync(path, 'utf8');
    const second = await open(t, { home });
    await second.asks();
    second.press('Up');
    await second.shows(/\n> My name is Ottilie\.$/);
    second.press('C-c');
    const third = await open(t, { home }, '--no-history');
    await third.asks();
    third.say('Who are you?');
    await third.shows(/tokens\/s\n>$/);
    assert.equal(readFileSync(path, 'utf8'), before);
  });

  const endless = (t, options) => Terminal.open(t, ['chat', ...steady, ...endlessly], options);

  test('what is typed during a reply is not echoed into it, and is the next message', async (t) => {
    const terminal = await endless(t);
    await terminal.asks();
    terminal.say('Who are you?');
    await terminal.shows(/Who are you\?\n.*\w/);
    const { pid } = terminal;
    process.kill(pid, 'SIGSTOP');
    await until('it has stopped', () => /^State:\s+T/m.test(readFileSync(`/proc/${pid}/status`, 'utf8')));
    terminal.press('C-c'); // ends the reply once it runs again
    const before = await steadily(() => terminal.shown());
    terminal.type('Typed ahead');
    assert.equal(await steadily(() => terminal.shown()), before);
    process.kill(pid, 'SIGCONT');
    await terminal.shows(/\n> Typed ahead$/);
    assert.equal(terminal.shown().split('Typed ahead').length, 2);
  });

  // As a shell does that takes the terminal back while the program is stopped: bracketed paste off, echo on.
  const stop = async (terminal) => {
    const { pid } = terminal;
    process.kill(pid, 'SIGSTOP');
    await until('it has stopped', () => /^State:\s+T/m.test(readFileSync(`/proc/${pid}/status`, 'utf8')));
    const tty = terminal.tmux('display-message', '-p', '-t', 'it', '#{pane_tty}').trim();
    writeFileSync(tty, '\u001b[?2004l');
    execFileSync('stty', ['-F', tty, 'sane']);
    return { pid, goOn: () => process.kill(pid, 'SIGCONT'), tty };
  };
  const echoes = (tty) => !/-echo\b/.test(execFileSync('stty', ['-F', tty, '-a'], { encoding: 'utf8' }));

  test('after Ctrl-Z and fg a paste is one message again', async (t) => {
    const terminal = await open(t);
    await terminal.asks();
    const { goOn } = await stop(terminal);
    const log = join(temporaryFolder(), 'log');
    terminal.tmux('pipe-pane', '-t', 'it', `cat > '${log}'`);
    goOn();
    await until('it takes pastes', () => existsSync(log) && readFileSync(log, 'utf8').includes('\u001b[?2004h'));
    terminal.paste('My name is\nOttilie.');
    await terminal.shows(/> \[paste 1: 19 bytes, 2 lines\]$/);
  });

  test('after Ctrl-Z and fg during a reply nothing that is typed is echoed into it', async (t) => {
    const terminal = await endless(t);
    await terminal.asks();
    terminal.say('Who are you?');
    await terminal.shows(/Who are you\?\n.*\w/);
    const { goOn, tty } = await stop(terminal);
    assert.ok(echoes(tty));
    goOn();
    await until('it has the terminal again', () => !echoes(tty));
    assert.ok(!/\n>$/.test(terminal.shown()), 'the reply goes on');
    terminal.press('C-c');
    await terminal.asks();
  });

  test('SIGQUIT, which Ctrl-\\ sends, gives the terminal back during a reply, too', async (t) => {
    const terminal = await endless(t, { then: "stty -a | grep -o -- '-*echo \\|-*icanon' | tr '\\n' ' '" });
    await terminal.asks();
    terminal.say('Who are you?');
    await terminal.shows(/Who are you\?\n.*\w/);
    process.kill(terminal.pid, 'SIGQUIT');
    await terminal.shows(/exit 0\n *icanon *echo/);
  });

  test('Ctrl-C stops a reply and not the program', async (t) => {
    const terminal = await endless(t);
    await terminal.asks();
    terminal.say('Who are you?');
    await terminal.shows(/Who are you\?\n.*\w/);
    terminal.press('C-c');
    await terminal.asks();
    terminal.say('/exit');
    await terminal.shows(/exit 0/);
    assert.ok(!/tokens\/s/.test(terminal.shown()), 'a stopped reply has no figures');
  });

  test('with replies going into a file the terminal has the prompts, and the file the replies alone', async (t) => {
    const file = join(temporaryFolder(), 'replies');
    const terminal = await Terminal.open(t, ['chat', ...steady], { into: file });
    await terminal.asks();
    terminal.say('My name is Ottilie.');
    await until('the reply is written', () => readFileSync(file, 'utf8').endsWith('\n'));
    await terminal.asks();
    terminal.say('/exit');
    await terminal.shows(/exit 0/);
    assert.equal(readFileSync(file, 'utf8'), 'Nice to meet you, Ottilie.\n');
    undecorated(readFileSync(file, 'utf8'));
  });

  test('a long prompt shows how much of it is read, and what was cached', async (t) => {
    const terminal = await open(t, {}, '--set', 'n_batch=32', '--set', 'n_ubatch=32', '--set', 'cache_min_tokens=0');
    await terminal.asks();
    const log = join(temporaryFolder(), 'log');
    terminal.tmux('pipe-pane', '-t', 'it', `cat > '${log}'`); // the line is gone once the reply begins
    terminal.say('Count. '.repeat(200));
    await terminal.shows(/tokens\/s\n>$/);
    terminal.say('Count. '.repeat(150));
    await terminal.shows(/tokens\/s\n(.*\n)+.*tokens\/s\n>$/);
    await until('all of it is written', () => /tokens\/s[^>]*> [^]*tokens\/s/.test(readFileSync(log, 'utf8')));
    const shown = readFileSync(log, 'utf8');
    assert.match(shown, /reading the prompt: \d+ of \d+ tokens\r/);
    assert.match(shown, /reading the prompt: \d+ of \d+ tokens, \d+ of them cached\r/);
    assert.ok(!/reading/.test(terminal.shown()));
  });
});

describe('commands', () => {
  const start = async (t, options, ...more) => {
    const terminal = await Terminal.open(t, ['chat', ...steady, '--set', 'cache_min_tokens=0', ...more], options);
    await terminal.asks();
    return terminal;
  };
  const does = async (terminal, line, pattern) => {
    terminal.say(line);
    return terminal.shows(new RegExp(`> ${line.replace(/[/[\].?]/g, '\\$&')}\n${pattern.source}\n>$`));
  };

  test('/help lists them all, and a mistyped one is told the nearest', async (t) => {
    const terminal = await start(t);
    terminal.say('/help');
    const names = ['help', 'clear', 'system', 'model', 'image', 'save', 'load', 'cache', 'stats', 'edit', 'undo', 'exit'];
    for (const name of names) await terminal.shows(new RegExp(`^/${name} `, 'm'));
    await does(terminal, '/hlep', /hearth chat: unknown command \/hlep; did you mean \/help\?/);
    await does(terminal, '/save', /hearth chat: \/save FILE: the file is missing/);
    await does(terminal, '/image', /hearth chat: \/image FILE: .*/);
    terminal.say('/usr/bin/env is a path.');
    await terminal.shows(/path\.\n.*\n.*tokens\/s\n>$/);
  });

  test('/undo and /clear forget, /system sets the system prompt', async (t) => {
    const terminal = await start(t, {}, '--system', 'Be kind.');
    const knows = (yes) => does(terminal, 'What is my name?', yes ? /Your name is Ottilie\..*\n.*tokens\/s/ : /(?!.*Ottilie).*\n.*tokens\/s/);
    await does(terminal, '/system', /system prompt: Be kind\./);
    await does(terminal, 'My name is Ottilie.', /Nice to meet you, Ottilie\.\n.*tokens\/s/);
    await knows(true);
    await does(terminal, '/undo', /taken back: What is my name\?/);
    await does(terminal, '/undo', /taken back: My name is Ottilie\./);
    await does(terminal, '/undo', /there is nothing to take back/);
    await knows(false);
    await does(terminal, '/clear', /a new conversation, with the same system prompt/);
    await does(terminal, '/system -', /system prompt: none/);
    await does(terminal, '/system You are Hearth.', /system prompt: You are Hearth\./);
    for (const line of ['/system You are kind.\\', 'And brief.']) terminal.say(line);
    await terminal.shows(/system prompt: You are kind\.\nAnd brief\.\n>$/);
    for (const line of ['/undo\\', 'this']) terminal.say(line);
    await terminal.shows(/hearth chat: \/undo takes one line; a blank before it makes it a message\n>$/);
  });

  test('/edit keeps the files that came with the message', async (t) => {
    const folder = temporaryFolder();
    const [image, saved] = ['a.png', 'chat.json'].map((name) => join(folder, name));
    writeFileSync(image, Buffer.from(png(3), 'base64'));
    const terminal = await start(t, { env: { VISUAL: '', EDITOR: 'sed -i s/this/that/' } }, '--mmproj', projectorFor(demo, 'llava'));
    await does(terminal, `/image ${image}`, /.* comes with the next line/);
    await does(terminal, 'What is this?', /[^]*tokens\/s/);
    await does(terminal, '/edit', /> What is that\?\n[^]*tokens\/s/);
    await does(terminal, `/save ${saved}`, /2 messages are in .*/);
    const [{ content }] = JSON.parse(readFileSync(saved, 'utf8')).messages;
    assert.deepEqual([content[0].image_url.url.replace(/^.*,/, ''), content[1].text], [png(3), 'What is that?']);
  });

  test('/save writes a request, which /load goes on with', async (t) => {
    const path = join(temporaryFolder(), 'chat.json');
    const first = await start(t, {}, '--system', 'You are a helpful assistant.');
    await does(first, 'My name is Ottilie.', /Nice to meet you, Ottilie\.\n.*tokens\/s/);
    await does(first, `/save ${path}`, /3 messages are in [^]*json/);
    assert.deepEqual(JSON.parse(readFileSync(path, 'utf8')), {
      model: 'demo',
      messages: [{ role: 'system', content: 'You are a helpful assistant.' }, { role: 'user', content: 'My name is Ottilie.' },
        { role: 'assistant', content: 'Nice to meet you, Ottilie.' }],
    });
    const { code, stdout, stderr } = await run(['chat', ...steady], { input: `/load ${path}\nWhat is my name?\n` });
    assert.deepEqual([code, stderr, stdout], [0, '', 'Your name is Ottilie.\n']);
    writeFileSync(path, '{"messages": [{"role": 7}]}');
    const wrong = await run(['chat', ...steady], { input: `/load ${path}\n` });
    assert.equal(wrong.code, 1);
    assert.match(wrong.stderr, /chat\.json: no list of messages/);
  });

  test('/save keeps attached files, and /load has them again', async () => {
    const folder = temporaryFolder();
    const [image, saved, again] = ['a.png', 'chat.json', 'again.json'].map((name) => join(folder, name));
    writeFileSync(image, Buffer.from(png(3), 'base64'));
    const result = await run(['chat', ...steady, '--mmproj', projectorFor(demo, 'llava')],
      { input: `/image ${image}\nWhat is this?\n/save ${saved}\n/clear\n/load ${saved}\n/save ${again}\n` });
    assert.deepEqual([result.code, result.stderr], [0, '']);
    const { messages } = JSON.parse(readFileSync(again, 'utf8'));
    assert.equal(messages[0].content[0].image_url.url.replace(/^.*,/, ''), png(3));
    assert.equal(readFileSync(again, 'utf8'), readFileSync(saved, 'utf8'));
  });

  test('/cache and /stats tell what was reused', async (t) => {
    const terminal = await start(t);
    await does(terminal, 'My name is Ottilie.', /Nice to meet you, Ottilie\.\n.*tokens\/s/);
    await does(terminal, 'What is my name?', /Your name is Ottilie\.\n.* of .* cached, .*tokens\/s/);
    const [, cached, all] = await does(terminal, '/cache', /(\d+) of (\d+) tokens of this conversation are cached: \d+ in KV cells(?:.*\n)*?disk: \d+ entries, .* MB/);
    assert.ok(Number(cached) > 40 && Number(cached) >= Number(all) - 2, `${cached} of ${all}`);
    terminal.say('/stats');
    const [, reused] = await terminal.shows(/2 replies in \d+\.\d s: (\d+) prompt tokens cached, \d+ computed, \d+ generated\n>$/);
    assert.equal(Number(reused), 31);
    terminal.say('/stats off');
    await terminal.asks();
    await does(terminal, 'What is my name?', /Your name is Ottilie\./);
  });

  test('/model lists the models and has another one answer', async (t) => {
    const path = join(temporaryFolder(), 'two.yaml');
    writeFileSync(path, `models:\n  first: {path: ${demo}}\n  second: {path: ${demo}, chat_template_kwargs: {}}\n`);
    const terminal = await Terminal.open(t, ['chat', '--config', path]);
    await terminal.asks();
    await does(terminal, '/model', /\* first\n {2}second/);
    await does(terminal, '/model second', /second answers/);
    await does(terminal, '/model third', /hearth chat: .*third.*/);
    await does(terminal, '/model', / {2}first\n\* second/);
  });

  test('/edit writes the last message anew', async (t) => {
    const terminal = await start(t, { env: { VISUAL: '', EDITOR: 'sed -i s/Otto/Ottilie/' } });
    await does(terminal, 'My name is Otto.', /Nice to meet you, Otto\.\n.*tokens\/s/);
    await does(terminal, '/edit', /> My name is Ottilie\.\nNice to meet you, Ottilie\.\n.*tokens\/s/);
    await does(terminal, 'What is my name?', /Your name is Ottilie\.\n.*tokens\/s/);
    const failing = await start(t, { env: { VISUAL: 'false' } });
    await does(failing, '/edit', /hearth chat: the editor \(false\) has failed[^]*/);
  });
});

// A terminal of 80 columns and 24 lines, by tmux, in which one command of hearth runs.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { hearth } from './models.js';
import { temporaryFolder } from './server.js';
import { until } from './wait.js';

const quoted = (word) => `'${word.replaceAll("'", "'\\''")}'`;

const keys = {
  'C-a': '\x01', 'C-c': '\x03', 'C-d': '\x04', 'C-e': '\x05', Enter: '\r', 'M-Enter': '\x1b\r', Left: '\x1b[D', Up: '\x1b[A',
};

export class Terminal {
  // `home` is its home folder; `env` is added to the environment; its standard output goes `into` a file, if one is
  // named. `then` is what the shell runs after it.
  static async open(t, args, { home = temporaryFolder(), env = {}, into, then = 'true' } = {}) {
    const terminal = new Terminal();
    terminal.socket = join(temporaryFolder(), 'tmux');
    const { NO_COLOR: _, TMUX: __, ...rest } = process.env;
    // Not as a daemon: it ends with the test.
    terminal.child = spawn('tmux', ['-D', '-u', '-S', terminal.socket, '-f', '/dev/null'],
      { stdio: 'ignore', env: { ...rest, HOME: home, XDG_STATE_HOME: '', LANG: 'C.UTF-8', ...env } });
    t.after(() => terminal.kill());
    await until('tmux listens', () => existsSync(terminal.socket));
    const command = [hearth, ...args].map(quoted).join(' ') + (into ? ` > ${quoted(into)}` : '');
    terminal.tmux('new-session', '-d', '-s', 'it', '-x', '80', '-y', '24', `${command}; echo "exit $?"; ${then}; exec cat`);
    return terminal;
  }

  // With the command, if it still runs: ended by a hang-up, LeakSanitizer may keep it, and a core, for ever.
  kill() {
    try {
      if (this.pid > 0) process.kill(this.pid, 'SIGKILL');
    } catch { /* the terminal has ended before */ }
    this.child.kill('SIGKILL');
  }

  tmux(...words) {
    return execFileSync('tmux', ['-u', '-S', this.socket, ...words], { encoding: 'utf8' });
  }

  // The terminal's bytes. (The first keys of tmux's own send-keys get lost where nobody looks at the terminal.)
  put(text, ...how) {
    execFileSync('tmux', ['-u', '-S', this.socket, 'load-buffer', '-'], { input: text });
    this.tmux('paste-buffer', '-d', '-t', 'it', ...how);
  }

  // Types a text as it is.
  type(text) {
    this.put(text);
  }

  press(...names) {
    this.put(names.map((name) => keys[name]).join(''));
  }

  // Types a line.
  say(text) {
    this.put(`${text}\r`);
  }

  // As terminals paste: in brackets, where the program has asked for them.
  paste(text) {
    this.put(text, '-p');
  }

  // The process of the command.
  get pid() {
    const shell = this.tmux('display-message', '-p', '-t', 'it', '#{pane_pid}').trim();
    return Number(readFileSync(`/proc/${shell}/task/${shell}/children`, 'utf8').trim().split(' ')[0]);
  }

  // Everything that was shown, with what has scrolled away; `styled` with its escape sequences.
  shown(styled = false) {
    return this.tmux('capture-pane', '-p', '-J', '-S', '-', '-t', 'it', ...styled ? ['-e'] : []).trimEnd();
  }

  lines() {
    return this.shown().split('\n').map((line) => line.trimEnd());
  }

  async shows(pattern, seconds = 60) {
    return until(`the terminal shows ${pattern}`, () => pattern.exec(this.shown()), { seconds }).catch((error) => {
      assert.fail(`${error.message}:\n${this.shown()}`);
    });
  }

  // The last line is an empty prompt.
  asks() {
    return this.shows(/(^|\n)>$/);
  }
}

// A daemon of its own in a directory of its own, for tests on real processes.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';

const root = path.resolve(import.meta.dirname, '../../../..');
/** The daemon's executable: `MCP_SESSIOND_BIN`, else that of the build. */
export const binary =
  process.env.MCP_SESSIOND_BIN ||
  path.join(process.env.CARGO_TARGET_DIR || path.join(root, 'target'), 'debug/mcp-sessiond');

/**
 * The lines that a process writes to `stream`, as they come. `next(pattern)` waits for one, and gives its
 * match.
 */
export function lines(stream) {
  const [unread, waiting] = [[], []];
  const all = [];
  let ended = false;
  const reader = createInterface({ input: stream });
  const settle = () => {
    for (let at = 0; at < waiting.length; ) {
      const { pattern, resolve, reject } = waiting[at];
      const found = unread.findIndex((line) => pattern.test(line));
      if (found < 0 && !ended) {
        at++;
        continue;
      }
      waiting.splice(at, 1);
      if (found >= 0) resolve(unread.splice(found, 1)[0].match(pattern));
      else reject(new Error(`it ended without ${pattern}:\n${all.join('\n')}`));
    }
  };
  reader.on('line', (line) => {
    all.push(line);
    unread.push(line);
    settle();
  });
  reader.on('close', () => {
    ended = true;
    settle();
  });
  return {
    all,
    next: (pattern) =>
      new Promise((resolve, reject) => {
        waiting.push({ pattern, resolve, reject });
        settle();
      }),
  };
}

/** Waits until a process has ended. */
export function ended(child) {
  if (child.exitCode !== null || child.signalCode !== null) return Promise.resolve();
  return new Promise((resolve) => child.once('exit', resolve));
}

/** Kills a process, and waits until it has ended. */
export async function kill(child, signal = 'SIGKILL') {
  // Before the signal: Deno says of a child that it has ended as soon as it is sent.
  const gone = ended(child);
  child.kill(signal);
  await gone;
}

/** Runs a command for which the kernel refuses SO_PEERPIDFD, as Linux does before 6.5. */
export const beforeLinux65 = [
  'python3',
  path.join(root, 'tests/python/refusing.py'),
  'getsockopt:2=77=ENOPROTOOPT',
  '--',
];

/** A directory, and the daemon that serves it. */
export class World {
  constructor(settings = {}) {
    this.base = mkdtempSync(path.join(tmpdir(), 'ts-'));
    this.directory = path.join(this.base, 'd');
    this.settings = settings;
  }

  /** Options of the client for this daemon, which it does not start by itself. */
  get options() {
    return { directory: this.directory, start: false };
  }

  get env() {
    return { ...process.env, MCP_SESSIOND_DIR: this.directory, MCP_SESSIOND_BIN: binary };
  }

  async start(prefix = []) {
    const flags = Object.entries(this.settings).flatMap(([name, value]) => ['--set', `${name}=${value}`]);
    const [command, ...words] = [...prefix, binary, 'run', ...flags];
    this.daemon = spawn(command, words, {
      env: { ...this.env, XDG_CONFIG_HOME: this.base },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    this.log = lines(this.daemon.stderr);
    await this.log.next(/ INFO ready /);
    return this;
  }

  async kill() {
    await kill(this.daemon);
  }

  async end() {
    if (this.daemon) await kill(this.daemon, 'SIGTERM');
    rmSync(this.base, { recursive: true, force: true });
  }
}

// Starts the daemon: through the service manager where it is installed there, else detached.
import { spawn } from 'node:child_process';
import { existsSync, lstatSync, statSync } from 'node:fs';
import { homedir } from 'node:os';
import path from 'node:path';
import { derivedDirectory, runtimeDirectory } from './directory.js';
import { SessiondError } from './errors.js';
import type { Options } from './options.js';
import type { Deadline } from './deadline.js';

const BINARY = 'mcp-sessiond';
/**
 * The exit code of `run` when another daemon holds the lock (`EX_TEMPFAIL` of sysexits.h): then that one
 * serves us.
 */
const ANOTHER_RUNS = 75;
/** The exit code of `run` for a bad configuration (`EX_USAGE`). */
const BAD_CONFIGURATION = 64;

/** Starts a daemon for `directory`, and returns when it is ready, or when another one is about to be. */
export async function startDaemon(directory: string, options: Options, deadline: Deadline): Promise<void> {
  if (directory === derivedDirectory() && (await byServiceManager(deadline))) return;
  const binary = options.binary ?? findBinary();
  const env =
    directory === runtimeDirectory() ? process.env : { ...process.env, MCP_SESSIOND_DIR: directory };
  const ended = await run(binary, ['run', '--on-demand'], env, deadline);
  if (ended instanceof Error) {
    const { message } = ended;
    throw new SessiondError(
      'not_connected',
      `no daemon runs, and ${binary} could not be started: ${message}; ` +
        'install it, or set MCP_SESSIOND_BIN to its path',
    );
  }
  // At the deadline, the next attempt to connect shows whether it runs.
  if (ended === undefined || ended === 0 || ended === ANOTHER_RUNS) return;
  const hint = ended === BAD_CONFIGURATION ? ': its configuration has an error' : '';
  throw new SessiondError(
    'not_connected',
    `\`${binary} run\` failed (${ended})${hint}; run it in a terminal to see why`,
  );
}

function findBinary(): string {
  const named = process.env['MCP_SESSIOND_BIN'];
  if (named) return named;
  const beside = path.join(path.dirname(process.execPath), BINARY);
  return existsSync(beside) ? beside : BINARY;
}

/**
 * How a command ended: its exit code, -1 for a signal, why it could not be started; undefined: it still runs.
 */
function run(
  command: string,
  args: string[],
  env: NodeJS.ProcessEnv,
  deadline: Deadline,
): Promise<number | Error | undefined> {
  return new Promise((resolve) => {
    const child = spawn(command, args, { env, stdio: 'ignore' });
    const timer = setTimeout(() => resolve(undefined), deadline.left);
    const end = (how: number | Error) => {
      clearTimeout(timer);
      resolve(how);
    };
    child.once('error', end);
    child.once('exit', (code) => end(code ?? -1));
  });
}

/** Whether the service manager has the daemon's socket, and started it. */
async function byServiceManager(deadline: Deadline): Promise<boolean> {
  const uid = process.getuid?.();
  if (process.platform === 'darwin') {
    const label = 'io.github.mcp-sessiond';
    if (!existsSync(path.join(homedir(), `Library/LaunchAgents/${label}.plist`))) return false;
    return (await run('/bin/launchctl', ['kickstart', `gui/${uid}/${label}`], process.env, deadline)) === 0;
  }
  const runtime = `/run/user/${uid}`;
  if (!derivedDirectory().startsWith(runtime)) return false;
  if (!hasUnit('mcp-sessiond.socket')) return false;
  // Not the socket: that may be listening already, on a path that was taken away. Hosts don't pass
  // XDG_RUNTIME_DIR on.
  const env = { ...process.env, XDG_RUNTIME_DIR: runtime };
  return (await run('systemctl', ['--user', 'start', 'mcp-sessiond.service'], env, deadline)) === 0;
}

/** Whether systemd has this unit: the first that it finds counts, also if it is masked, by a link to /dev/null. */
function hasUnit(name: string): boolean {
  const config = process.env['XDG_CONFIG_HOME'] || path.join(homedir(), '.config');
  const others = ['/etc/systemd/user', '/usr/local/lib/systemd/user', '/usr/lib/systemd/user'];
  const units = [path.join(config, 'systemd/user'), ...others].map((folder) => path.join(folder, name));
  try {
    const unit = units.find((unit) => lstatSync(unit, { throwIfNoEntry: false }));
    return unit !== undefined && statSync(unit).isFile();
  } catch {
    return false;
  }
}

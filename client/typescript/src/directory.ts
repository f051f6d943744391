// The runtime directory, and what must hold of it before a word is said (proto/PROTOCOL.md, "Where the daemon
// is").
import { lstatSync } from 'node:fs';
import { homedir } from 'node:os';
import path from 'node:path';
import { SessiondError } from './errors.js';

/** The longest path of a socket, in bytes: macOS has room for 104, with the NUL. */
const SOCKET_PATH_MAX = 103;
const MODE = 0o700;

/** Our effective user id. */
function ourUid(): number {
  const uid = process.geteuid?.();
  if (uid === undefined)
    throw new SessiondError('not_connected', 'mcp-sessiond runs only on Linux and macOS');
  return uid;
}

/** The directory that follows from the uid alone. */
export function derivedDirectory(): string {
  const uid = ourUid();
  if (process.platform === 'darwin') {
    return path.join(homedir(), 'Library/Application Support/mcp-sessiond');
  }
  const run = `/run/user/${uid}`;
  const found = lstatSync(run, { throwIfNoEntry: false });
  return found?.isDirectory() && found.uid === uid ? `${run}/mcp-sessiond` : `/tmp/mcp-sessiond-${uid}`;
}

/** The runtime directory: `given`, else `MCP_SESSIOND_DIR`, else the derived one. */
export function runtimeDirectory(given?: string): string {
  const named = given ?? process.env['MCP_SESSIOND_DIR'];
  if (!named) return derivedDirectory();
  if (!path.isAbsolute(named)) {
    throw new SessiondError('not_connected', `the runtime directory ${named} is not an absolute path`);
  }
  return named;
}

/** The daemon's socket in it. */
export function socketOf(directory: string): string {
  const socket = path.join(directory, 'daemon.sock');
  if (Buffer.byteLength(socket) > SOCKET_PATH_MAX) {
    throw new SessiondError(
      'not_connected',
      `the path ${socket} is too long for a socket; set MCP_SESSIOND_DIR to a shorter one`,
    );
  }
  return socket;
}

/** The directory is not there: no daemon has run. */
export class NotRunning extends SessiondError {
  constructor(socket: string) {
    super(
      'not_connected',
      `no daemon listens at ${socket}; start one with \`mcp-sessiond run\`, or \`mcp-sessiond install\` it`,
    );
  }
}

/**
 * Checks that the directory itself, not something that a link points to, is ours and closed to everybody
 * else. Then nobody else can have put a socket into it. (Node does not tell the uid of a listener, so the
 * owner of the socket's file is looked at in its place.) Throws {@link NotRunning} where there is none, else
 * a {@link SessiondError} that says what is wrong.
 */
export function checkDirectory(directory: string): void {
  const found = lstatSync(directory, { throwIfNoEntry: false });
  const refuse = (what: string): never => {
    throw new SessiondError('not_connected', `${directory} ${what}`);
  };
  if (!found) throw new NotRunning(socketOf(directory));
  const uid = ourUid();
  if (found.isSymbolicLink())
    refuse('is a symbolic link, which is never followed; remove it, and the daemon makes a directory');
  if (!found.isDirectory()) refuse('is not a directory; remove it, and the daemon makes one');
  if (found.uid !== uid)
    refuse(`belongs to uid ${found.uid}, not to ${uid}; remove it, or set MCP_SESSIOND_DIR to another`);
  const mode = found.mode & 0o777;
  if (mode !== MODE)
    refuse(`has mode 0${mode.toString(8)} and must have 0700; see who changed it, then \`chmod 700\` it`);
  const socket = lstatSync(socketOf(directory), { throwIfNoEntry: false });
  if (socket && socket.uid !== uid) refuse(`has a socket of uid ${socket.uid}; nothing was sent to it`);
}

// Connects to the daemon, and starts one where none runs.
import { Connection } from './connection.js';
import { NotRunning, runtimeDirectory, socketOf } from './directory.js';
import { SessiondError } from './errors.js';
import { HelloRefused } from './hello.js';
import type { Options } from './options.js';
import { pause, type Deadline } from './deadline.js';
import { startDaemon } from './start.js';

/** The first and the longest pause between two attempts, in ms; each is twice the one before. */
const PAUSE_MIN_MS = 2;
const PAUSE_MAX_MS = 100;
/**
 * How long a daemon that was started has to appear before another is started, in ms: the one that held the
 * lock may exit.
 */
const START_AGAIN_MS = 500;

/**
 * A connection to the daemon. `known`: one has answered before, so it is coming back, and is waited for also
 * by who may not start one. Rejects with a {@link SessiondError}: nothing was sent to anybody but a daemon of
 * this user's.
 */
export async function connect(options: Options, known: boolean, deadline: Deadline): Promise<Connection> {
  const directory = runtimeDirectory(options.directory);
  let wait = PAUSE_MIN_MS;
  let last: Error = new SessiondError('not_connected', 'it did not finish its hello');
  let startedAt: number | undefined;
  for (;;) {
    try {
      return await deadline.bound(Connection.open(directory));
    } catch (error) {
      if (!(error instanceof Error) || !isTransient(error)) throw asSessiondError(error, directory);
      last = error;
    }
    if (last instanceof NotRunning) {
      if (options.start === false) {
        if (!known) throw last;
      } else if (startedAt === undefined || performance.now() - startedAt >= START_AGAIN_MS) {
        await startDaemon(directory, options, deadline);
        startedAt = performance.now();
        wait = PAUSE_MIN_MS;
      }
    }
    if (wait >= deadline.left) {
      throw new SessiondError(
        'not_connected',
        `the daemon at ${socketOf(directory)} was not reached within ` +
          `${Math.round(deadline.totalMs)} ms (${last.message}); see \`mcp-sessiond doctor\``,
      );
    }
    await pause(wait);
    wait = Math.min(wait * 2, PAUSE_MAX_MS);
  }
}

/** Whether the next attempt may succeed. */
function isTransient(error: NodeJS.ErrnoException): boolean {
  if (error instanceof HelloRefused) return error.isTransient;
  if (error instanceof NotRunning) return true;
  if (error instanceof SessiondError) return error.code === 'no_answer';
  // EAGAIN: so many connect at once that the backlog is full. ECONNRESET, EPIPE: the daemon was killed
  // meanwhile.
  return ['EAGAIN', 'EINTR', 'ECONNRESET', 'EPIPE'].includes(error.code ?? '');
}

function asSessiondError(error: unknown, directory: string): SessiondError {
  if (error instanceof SessiondError) return error;
  return new SessiondError('not_connected', `${socketOf(directory)} can't be reached: ${String(error)}`);
}

// What has become of a task is stored, as soon as the daemon is there.
import { isCode, SessiondError } from '../errors.js';
import type { Logger } from '../options.js';
import { pause } from '../patience.js';
import { isGone } from './rpc.js';

/** The pause while the daemon is away, in ms. */
export const RETRY_MS = 1_000;

/** Logs a warning. */
export type Warn = (line: string) => void;

/** Warnings on a logger. One that throws is no trouble of the server's. */
export function warner(log: Logger): Warn {
  return (line) => {
    try {
      log('warn', `mcp-sessiond: ${line}`);
    } catch {
      // Nobody is there to be told.
    }
  };
}

/** Repeats what may succeed later, until `signal` is aborted. Rejects with what will not. */
export async function persist(what: () => Promise<unknown>, warn: Warn, signal?: AbortSignal): Promise<void> {
  for (let warned = false; ; warned = true) {
    try {
      await what();
      return;
    } catch (error) {
      if (!(error instanceof SessiondError && error.passes) || signal?.aborted) throw error;
      if (!warned) warn(`a task waits to be stored: ${error.message}`);
      await pause(RETRY_MS);
    }
  }
}

/** Says what is not kept, unless nobody misses it: the task has ended, or is gone. */
export function warnUnlessEnded(error: unknown, warn: Warn): void {
  if (!isGone(error) && !isCode(error, 'task_ended'))
    warn(`a change of a task is not kept: ${String(error)}`);
}

// What has become of a task is stored, as soon as the daemon is there, and as far as it takes it.
import { isCode, SessiondError } from '../errors.js';
import type { Warn } from '../options.js';
import { pause } from '../deadline.js';
import type { Task } from '../task.js';
import { isGone, RpcError } from './rpc.js';

/** The pause while the daemon is away, in ms. */
export const RETRY_MS = 1_000;
/** The longest message of a task that the daemon takes, in bytes. */
const MESSAGE_MAX = 4_096;

/** Repeats what may succeed later, until `signal` is aborted. Rejects with what will not. */
export async function persist(what: () => Promise<unknown>, warn: Warn, signal: AbortSignal): Promise<void> {
  for (let warned = false; ; warned = true) {
    try {
      await what();
      return;
    } catch (error) {
      if (!(error instanceof SessiondError && error.passes) || signal.aborted) throw error;
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

/**
 * Ends a task: `how`, or where the daemon does not take that, by an error that says so. Never rejects.
 * `signal`: nobody waits for a daemon that is away any more.
 */
export async function endTask(
  task: Task,
  how: () => Promise<unknown>,
  warn: Warn,
  signal: AbortSignal,
): Promise<void> {
  try {
    await persist(how, warn, signal);
  } catch (error) {
    if (!isCode(error, 'quota_exceeded', 'invalid_argument')) return warnUnlessEnded(error, warn);
    const data = { outcome: 'not_kept' };
    const { json } = RpcError.internal(`the result could not be stored: ${error.message}`, data);
    await persist(() => task.fail(json), warn, signal).catch((failed: unknown) =>
      warnUnlessEnded(failed, warn),
    );
  }
}

/** As much of a text as a task's message may have. */
export function truncated(text: string): string {
  const bytes = new TextEncoder().encode(text);
  const whole = bytes.length <= MESSAGE_MAX;
  const read = new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes.subarray(0, MESSAGE_MAX));
  // A character that was cut in two.
  return whole ? read : read.replace(/\uFFFD$/, '');
}

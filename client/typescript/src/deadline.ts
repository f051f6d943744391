// The deadline of a call, with all its attempts.
import { SessiondError } from './errors.js';

/** A deadline. */
export class Deadline {
  readonly #until: number;

  /** `totalMs`: from now, in ms. */
  constructor(readonly totalMs: number) {
    this.#until = performance.now() + totalMs;
  }

  /** The time left, in ms; 0 after the deadline. */
  get left(): number {
    return Math.max(0, this.#until - performance.now());
  }

  /** The error of a call that took too long. */
  error(): SessiondError {
    return new SessiondError(
      'no_answer',
      `the daemon did not answer within ${Math.round(this.totalMs)} ms; see \`mcp-sessiond doctor\``,
    );
  }

  /** `work`, or after the deadline an error. The work goes on then. */
  async bound<T>(work: Promise<T>): Promise<T> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(this.error()), this.left);
    });
    try {
      return await Promise.race([work, late]);
    } finally {
      clearTimeout(timer);
    }
  }

  /**
   * The deadline on the machine's `CLOCK_MONOTONIC`, in ms as text. Undefined where the runtime does not read
   * that clock.
   */
  get monotonic(): string | undefined {
    // Only Node's own clock is known to be that of the machine; that of others may begin with the process.
    const own = process.platform === 'linux' && !('bun' in process.versions) && !('deno' in process.versions);
    return own ? String(process.hrtime.bigint() / 1_000_000n + BigInt(Math.ceil(this.left))) : undefined;
  }
}

/** Waits, at most as long as is left. */
export function pause(ms: number, deadline?: Deadline): Promise<void> {
  const bounded = Math.min(ms, deadline?.left ?? ms);
  return new Promise((resolve) => void setTimeout(resolve, bounded));
}

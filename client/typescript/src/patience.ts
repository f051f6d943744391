// How long somebody waits for a call, with all its attempts.
import { SessiondError } from './errors.js';

/** A deadline. */
export class Patience {
  readonly #until: number;

  /** `whole`: how long, in ms. */
  constructor(readonly whole: number) {
    this.#until = performance.now() + whole;
  }

  /** What is left, in ms; 0 where it is over. */
  get left(): number {
    return Math.max(0, this.#until - performance.now());
  }

  /** The error of a call that took too long. */
  out(): SessiondError {
    return new SessiondError(
      'no_answer',
      `the daemon did not answer within ${Math.round(this.whole)} ms; see \`mcp-sessiond doctor\``,
    );
  }

  /** `work`, or after the deadline an error. The work goes on then. */
  async bound<T>(work: Promise<T>): Promise<T> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(this.out()), this.left);
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
export function pause(ms: number, patience?: Patience): Promise<void> {
  const bounded = Math.min(ms, patience?.left ?? ms);
  return new Promise((resolve) => void setTimeout(resolve, bounded));
}

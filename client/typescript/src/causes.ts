// Why requests were refused, for the log: their clients do not learn it.
import { SessiondError } from './errors.js';
import type { Warn } from './options.js';

/** How often a cause of one kind is logged at most, in ms. */
const PAUSE_MS = 60_000;

/** The causes that one server logs. */
export class Causes {
  readonly #warn: Warn;
  /** When a cause was logged, by its code. */
  readonly #loggedAt = new Map<string, number>();

  constructor(warn: Warn) {
    this.#warn = warn;
  }

  /** Logs why there was a refusal, unless the same kind of cause was logged just now. */
  log(refusal: string, cause: unknown): void {
    const kind = cause instanceof SessiondError ? cause.code : 'failed';
    const now = performance.now();
    if (now - (this.#loggedAt.get(kind) ?? -Infinity) < PAUSE_MS) return;
    this.#loggedAt.set(kind, now);
    this.#warn(`${refusal}: ${cause instanceof SessiondError ? cause.message : String(cause)}`);
  }
}

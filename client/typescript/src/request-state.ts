// The codec of the SDK's v2 for `requestState`, with the secret of a service as its key: what one process has
// signed, every other one verifies, also after a restart.
import { randomBytes } from 'node:crypto';
import { warner, type Options, type Warn } from './options.js';
import { pause } from './deadline.js';
import { Sessions } from './sessions.js';
import type { Secret } from './types.js';

/** How long a secret counts as current, in ms, before the daemon is asked again. */
const FRESH_MS = 60_000;
/** After how long nobody goes on with a secret before the daemon has answered, in ms: a former one counts for a day. */
const STALE_MS = 3600_000;
/** How long at least between two questions about the secret, in ms: a client may send what nobody has signed. */
const ASK_MS = 1_000;
/** Bytes of a key, where the daemon is away. */
const KEY_BYTES = 32;

/** What the SDK's `createRequestStateCodec` makes. */
export interface StateCodec<T = any> {
  mint(payload: T, context?: any): Promise<string>;
  verify(state: string, context: any): Promise<T>;
}

/** The SDK's `createRequestStateCodec`. */
export type CreateCodec<C = any> = (options: {
  key: Uint8Array;
  ttlSeconds?: number;
  bind?: (context: C) => string;
}) => StateCodec;

/** How a codec works. `ttlSeconds` and `bind` are those of the SDK. */
export interface RequestStateOptions<C = any> extends Options {
  /** The service whose processes verify what one of them has signed: 1 to 128 visible ASCII characters. */
  service: string;
  /** How long a state counts, in seconds: 600. A former key counts for a day. */
  ttlSeconds?: number;
  /** Who or what a state is bound to. */
  bind?: (context: C) => string;
}

/**
 * A codec for `requestState`, for `@modelcontextprotocol/server`. Where the daemon is away at first, states
 * count in this process alone, and one line is logged.
 *
 * ```ts
 * const state = requestStateCodec(createRequestStateCodec, { service: 'shop' });
 * new McpServer(info, { requestState: { verify: state.verify } });
 * ```
 */
export function requestStateCodec<T = unknown>(
  create: CreateCodec,
  options: RequestStateOptions,
): StateCodec<T> {
  const codec = new Codec(create, options);
  // The SDK takes `verify` without its object.
  return {
    mint: (payload, context) => codec.mint(payload, context),
    verify: (state, context) => codec.verify(state, context),
  };
}

class Codec {
  readonly #sessions: Sessions;
  readonly #warn: Warn;
  readonly #codec: (key: Uint8Array) => StateCodec;
  /** The current one first. */
  #codecs: StateCodec[] = [];
  #own: StateCodec | undefined;
  #toldAt = -Infinity;
  #askedAt = -Infinity;
  #asking: Promise<void> | undefined;
  #failing = false;

  constructor(create: CreateCodec, { service, ttlSeconds, bind, ...options }: RequestStateOptions) {
    this.#sessions = Sessions.ofService(service, options);
    this.#warn = warner(options.log);
    const more = {
      ...(ttlSeconds === undefined ? {} : { ttlSeconds }),
      ...(bind === undefined ? {} : { bind }),
    };
    this.#codec = (key) => create({ key, ...more });
  }

  async mint(payload: unknown, context?: unknown): Promise<string> {
    await this.#known();
    return this.#codecs[0]!.mint(payload, context);
  }

  async verify(state: string, context: unknown): Promise<any> {
    await this.#known();
    const told = await this.#verified(state, context);
    if (told) return told.payload;
    // Another process may have changed the key just now.
    await this.#askAgain();
    const again = await this.#verified(state, context);
    if (!again) throw new Error('mac');
    return again.payload;
  }

  /** Undefined: none of the keys has signed it. Rejects where one has, and it does not count. */
  async #verified(state: string, context: unknown): Promise<{ payload: unknown } | undefined> {
    for (const codec of this.#codecs) {
      try {
        return { payload: await codec.verify(state, context) };
      } catch (error) {
        if ((error as Error).message !== 'mac') throw error;
      }
    }
    return undefined;
  }

  /** Has a secret, which is fresh enough. Never rejects, and waits for no daemon that is known to be away. */
  async #known(): Promise<void> {
    const age = performance.now() - this.#toldAt;
    if (age < FRESH_MS) return;
    const asked = this.#askAgain();
    if (this.#codecs.length === 0 || (age >= STALE_MS && !this.#failing)) await asked;
  }

  /** Asks for the secret, once for all that want to know. */
  #askAgain(): Promise<void> {
    const wait = Math.max(0, this.#askedAt + ASK_MS - performance.now());
    this.#asking ??= pause(wait)
      .then(() => this.#ask())
      .finally(() => {
        this.#asking = undefined;
      });
    return this.#asking;
  }

  async #ask(): Promise<void> {
    let secret: Secret;
    this.#askedAt = performance.now();
    try {
      secret = await this.#sessions.secret();
      this.#failing = false;
    } catch (error) {
      if (!this.#failing) this.#warn(`the key of requestState can't be had: ${String(error)}`);
      this.#failing = true;
      this.#own ??= this.#codec(randomBytes(KEY_BYTES));
      if (this.#codecs.length === 0) this.#codecs = [this.#own];
      return;
    }
    this.#toldAt = performance.now();
    this.#codecs = [secret.current, ...secret.former].map((key) => this.#codec(key));
    if (this.#own) this.#codecs.push(this.#own);
  }
}

// The `Store` of express-session: sessions of a web site, beside those of MCP.
import { createHash } from 'node:crypto';
import { isCode } from './errors.js';
import type { Options } from './options.js';
import type { Session } from './session.js';
import { Sessions } from './sessions.js';

/** The key of a session's state that has what express-session keeps. */
const KEY = 'mcp.express';
/** How long a session lives after its last use whose cookie does not say, in ms. */
const TTL_MS = 24 * 3600_000;

/** What express-session keeps of a session. */
export interface ExpressData {
  cookie: { originalMaxAge?: number | null; expires?: Date | string | null };
}

type Done<T = void> = (error?: unknown, value?: T) => void;

/** What the store does. `express-session` calls these. */
export interface ExpressStore {
  get(sid: string, done: Done<any>): void;
  set(sid: string, data: any, done?: Done): void;
  touch(sid: string, data: any, done?: Done): void;
  destroy(sid: string, done?: Done): void;
  all(done: Done<any>): void;
  length(done: Done<number>): void;
  clear(done?: Done): void;
}

/** How the store works. */
export interface ExpressStoreOptions extends Options {
  /**
   * The service whose sessions they are: 1 to 128 visible ASCII characters. Give it to nothing else: `clear`
   * ends them all.
   */
  service: string;
  /** How long a session lives after its last use whose cookie has no `maxAge`, in ms: a day. */
  ttlMs?: number;
}

/**
 * A store for express-session, whose class `Store` it extends. The daemon gets a hash of each session id, not
 * the id.
 *
 * ```ts
 * import session from 'express-session'; app.use(session({ store: expressStore(session.Store, { service:
 * 'web' }), secret, resave: false, saveUninitialized: false }));
 * ```
 */
export function expressStore<S extends abstract new (...given: any[]) => object>(
  Base: S,
  options: ExpressStoreOptions,
): InstanceType<S> & ExpressStore {
  const kept = new Kept(options);
  // An `abstract` base can't be extended by an expression that is instantiated.
  const Concrete = Base as unknown as new () => object;
  class SessiondStore extends Concrete implements ExpressStore {
    get(sid: string, done: Done<any>): void {
      settle(kept.get(sid), done);
    }

    set(sid: string, data: ExpressData, done?: Done): void {
      settle(kept.set(sid, data), done);
    }

    touch(sid: string, data: ExpressData, done?: Done): void {
      settle(kept.touch(sid, data), done);
    }

    destroy(sid: string, done?: Done): void {
      settle(kept.destroy(sid), done);
    }

    all(done: Done<ExpressData[]>): void {
      settle(kept.all(), done);
    }

    length(done: Done<number>): void {
      settle(
        kept.all().then(({ length }) => length),
        done,
      );
    }

    clear(done?: Done): void {
      settle(kept.clear(), done);
    }
  }
  return new SessiondStore() as InstanceType<S> & ExpressStore;
}

/** Calls back. What `done` throws is the caller's own, and is thrown where nothing catches it by mistake. */
function settle<T>(work: Promise<T>, done: Done<T> = () => undefined): void {
  work.then(
    (value) => setImmediate(done, null, value),
    (error: unknown) => setImmediate(done, error),
  );
}

class Kept {
  readonly #sessions: Sessions;
  readonly #ttlMs: number;

  constructor({ service, ttlMs = TTL_MS, ...options }: ExpressStoreOptions) {
    this.#sessions = Sessions.ofService(service, options);
    this.#ttlMs = ttlMs;
  }

  async get(sid: string): Promise<ExpressData | null> {
    const session = await this.#found(sid);
    return (await session?.get<ExpressData>(KEY)) ?? null;
  }

  async set(sid: string, data: ExpressData): Promise<void> {
    const session = (await this.#found(sid)) ?? (await this.#made(sid, data));
    await session.set(KEY, data);
  }

  async touch(sid: string, data: ExpressData): Promise<void> {
    await (await this.#found(sid))?.update({ lifetimes: this.#lifetimes(data) });
  }

  async destroy(sid: string): Promise<void> {
    await (await this.#found(sid))?.terminate();
  }

  async all(): Promise<ExpressData[]> {
    const values = await Promise.all(
      (await this.#living()).map((session) => session.get<ExpressData>(KEY).catch(unlessGone)),
    );
    return values.filter((value) => value !== undefined);
  }

  async clear(): Promise<void> {
    await Promise.all((await this.#living()).map((session) => session.terminate().catch(unlessGone)));
  }

  async #living(): Promise<Session[]> {
    const living = (await this.#sessions.list()).filter(({ status }) => status.is !== 'terminated');
    const opened = await Promise.all(living.map(({ id }) => this.#sessions.open(id).catch(unlessGone)));
    return opened.filter((session) => session !== undefined);
  }

  #found(sid: string): Promise<Session | undefined> {
    return this.#sessions.open(hashed(sid)).catch(unlessGone);
  }

  async #made(sid: string, data: ExpressData): Promise<Session> {
    try {
      return await this.#sessions.create({
        id: hashed(sid),
        status: { is: 'ready' },
        lifetimes: this.#lifetimes(data),
      });
    } catch (error) {
      // Another request of the same client has made it just now.
      if (!isCode(error, 'already_exists')) throw error;
      return this.#sessions.open(hashed(sid));
    }
  }

  #lifetimes({ cookie }: ExpressData): { idleMs: number } {
    return { idleMs: cookie?.originalMaxAge || this.#ttlMs };
  }
}

/** A session id of express-session gives access to the session, so the daemon does not get it. */
function hashed(sid: string): string {
  return createHash('sha256').update(sid).digest('hex');
}

function unlessGone(error: unknown): undefined {
  if (!isCode(error, 'unknown_session', 'session_terminated')) throw error;
}

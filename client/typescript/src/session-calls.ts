// The calls of one session: by what right they are made, and on whose behalf.
import type { Call } from './retrying-client.js';
import { Cancelled } from './connection.js';
import type { Connections } from './connections.js';
import { pause } from './deadline.js';
import type { Caller } from './types.js';
import type { Wire } from './wire.js';

/** Entries in a page of a list. */
const PAGE_MAX = 100;
/** The longest wait of one call, in ms. */
const WAIT_MAX_MS = 25_000;
/** The pause after a wait that ended early with nothing to tell, in ms: the daemon is about to exit. */
const ENDED_EARLY_PAUSE_MS = 50;

/** By what right a session is changed: as a service's, or under the lease of a host's. */
export type Access = { service: string } | { epoch: () => Promise<string> };

/** The fields of a SessionRef. */
export interface SessionRef {
  session: string;
  service?: string;
  epoch?: string;
  caller?: Caller;
}

/** What calls of a session have in common. */
export class SessionCalls {
  /** Its id. */
  readonly id: string;
  // Not shown where somebody prints a session.
  readonly #connections: Connections;
  readonly #access: Access;
  #caller: Caller | undefined;

  /** @internal */
  constructor(connections: Connections, id: string, access: Access, caller?: Caller) {
    this.id = id;
    this.#connections = connections;
    this.#access = access;
    this.#caller = caller;
  }

  /** @internal */
  protected get connections(): Connections {
    return this.#connections;
  }

  /** @internal */
  protected get access(): Access {
    return this.#access;
  }

  /** Who asks from now on. @internal */
  protected set caller(caller: Caller) {
    this.#caller = caller;
  }

  /** A call that changes the session. @internal */
  change(method: string, fields: Wire = {}): Promise<unknown> {
    return this.call({ method, params: async () => ({ of: await this.changeRef(), ...fields }) });
  }

  /** A call that changes nothing. @internal */
  read(method: string, fields?: Wire): Promise<unknown> {
    const of = this.readRef();
    return this.call({ method, params: () => (fields ? { of, ...fields } : of) });
  }

  /**
   * Waits, by as many calls as that takes, until `isOver` says so of what one has found. Where `ms` are over, or `signal` is
   * aborted: what the last one has found, if it was answered. `fields` are asked for at each call. @internal
   */
  async waiting<T>(
    method: string,
    fields: () => Wire,
    { found, isOver }: { found: (answer: Wire | undefined) => T | Promise<T>; isOver: (found: T) => boolean },
    ms: number,
    signal?: AbortSignal,
  ): Promise<T> {
    const until = performance.now() + ms;
    // What was waited before a connection broke counts.
    const left = () => Math.min(Math.max(0, Math.ceil(until - performance.now())), WAIT_MAX_MS);
    const params = () => ({ of: this.readRef(), ...fields(), timeout_ms: left() });
    for (;;) {
      const [part, began] = [left(), performance.now()];
      const answer = await this.connections.wait({ method, params, signal }, part).catch((error: unknown) => {
        if (!(error instanceof Cancelled)) throw error;
      });
      const now = await found(answer as Wire | undefined);
      if (isOver(now) || signal?.aborted || performance.now() >= until) return now;
      if (performance.now() - began < part) await pause(Math.min(ENDED_EARLY_PAUSE_MS, part));
    }
  }

  /** All pages of a list. @internal */
  protected async pages(method: string, keyOf: (last: Wire) => string): Promise<Wire[]> {
    const all: Wire[] = [];
    for (;;) {
      const last = all.at(-1);
      const page = (await this.read(method, last ? { after: keyOf(last) } : {})) as Wire[];
      all.push(...page);
      if (page.length < PAGE_MAX) return all;
    }
  }

  /** @internal */
  protected call(call: Call): Promise<unknown> {
    return this.connections.call(call);
  }

  /** How a call that changes nothing names the session. @internal */
  protected readRef(): SessionRef {
    return {
      session: this.id,
      ...('service' in this.access ? { service: this.access.service } : {}),
      ...(this.#caller ? { caller: this.#caller } : {}),
    };
  }

  /** How a call that changes the session names it. @internal */
  protected async changeRef(): Promise<SessionRef> {
    const ref = this.readRef();
    return 'epoch' in this.access ? { ...ref, epoch: await this.access.epoch() } : ref;
  }
}

// The calls of one session: by what right they are made, and on whose behalf.
import type { Call } from './calls.js';
import type { Connection } from './connection.js';
import type { Line } from './line.js';
import type { Caller } from './types.js';
import type { Wire } from './wire.js';

/** Entries in a page of a list. */
const PAGE_MAX = 100;

/** By what right a session is changed: as a service's, or under the lease of a host's. */
export type Hold = { service: string } | { epoch: () => Promise<string> };

/** The fields of a SessionRef. */
export interface Named {
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
  readonly #line: Line;
  readonly #hold: Hold;
  #caller: Caller | undefined;

  /** @internal */
  constructor(line: Line, id: string, hold: Hold, caller?: Caller) {
    this.id = id;
    this.#line = line;
    this.#hold = hold;
    this.#caller = caller;
  }

  /** @internal */
  protected get line(): Line {
    return this.#line;
  }

  /** @internal */
  protected get hold(): Hold {
    return this.#hold;
  }

  /** Who asks from now on. @internal */
  protected set caller(caller: Caller) {
    this.#caller = caller;
  }

  /** A call that changes the session. @internal */
  change(method: string, fields: Wire = {}, daemon?: (connection: Connection) => Wire): Promise<unknown> {
    const params = async (connection: Connection) => ({
      of: await this.named(),
      ...fields,
      ...daemon?.(connection),
    });
    return this.call({ method, params });
  }

  /** A call that changes nothing. @internal */
  read(method: string, fields?: Wire): Promise<unknown> {
    const of = this.reading();
    return this.call({ method, params: () => (fields ? { of, ...fields } : of) });
  }

  /** A call that changes nothing and may wait for `ms`. `fields` are asked for at each attempt. @internal */
  waiting(method: string, fields: () => Wire, ms: number, signal?: AbortSignal): Promise<unknown> {
    const params = () => ({ of: this.reading(), ...fields() });
    return this.line.wait({ method, params, signal }, ms);
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
    return this.line.call(call);
  }

  /** How a call that changes nothing names the session. @internal */
  protected reading(): Named {
    return {
      session: this.id,
      ...('service' in this.hold ? { service: this.hold.service } : {}),
      ...(this.#caller ? { caller: this.#caller } : {}),
    };
  }

  /** How a call that changes the session names it. @internal */
  protected async named(): Promise<Named> {
    const named = this.reading();
    return 'epoch' in this.hold ? { ...named, epoch: await this.hold.epoch() } : named;
  }
}

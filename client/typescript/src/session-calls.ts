// The calls of one session: by what right they are made, and on whose behalf.
import type { Call } from './retrying-client.js';
import type { Connections } from './connections.js';
import type { Caller } from './types.js';
import type { Wire } from './wire.js';

/** Entries in a page of a list. */
const PAGE_MAX = 100;

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

  /** A call that changes nothing and may wait for `ms`. `fields` are asked for at each attempt. @internal */
  waiting(method: string, fields: () => Wire, ms: number, signal?: AbortSignal): Promise<unknown> {
    const params = () => ({ of: this.readRef(), ...fields() });
    return this.connections.wait({ method, params, signal }, ms);
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

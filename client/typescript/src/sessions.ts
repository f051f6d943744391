// The sessions of one owner: made, opened, listed.
import { SessiondError } from './errors.js';
import { Connections } from './connections.js';
import { Deadline } from './deadline.js';
import type { Options } from './options.js';
import { Session } from './session.js';
import type { Access } from './session-calls.js';
import type { Caller, CreateOptions, Secret, SessionView } from './types.js';
import { fromView, jsonText, present, requestId, toLifetimes, toStatus, uuidV7, type Wire } from './wire.js';

/**
 * The sessions of a host or of a service. What passes is waited for, within `timeoutMs`: a daemon that is
 * restarting or busy, an answer that was lost. Every call rejects with a {@link SessiondError}.
 */
export class Sessions {
  readonly #connections: Connections;
  readonly #service: string | undefined;
  readonly #caller: Caller | undefined;

  private constructor(connections: Connections, service: string | undefined, caller?: Caller) {
    this.#connections = connections;
    this.#service = service;
    this.#caller = caller;
  }

  /**
   * The sessions of a service, which every process of this user that says the name is: 1 to 128 visible ASCII
   * characters. Nothing is sent before the first call.
   */
  static ofService(service: string, options: Options = {}): Sessions {
    return new Sessions(new Connections(options), service);
  }

  /** The sessions of the host that started this process, as far as they are this server's. */
  static ofHost(options: Options = {}): Sessions {
    return new Sessions(new Connections(options), undefined);
  }

  /** The same, asked for by this caller of the server: sessions that are bound to it can be opened. */
  onBehalfOf(caller: Caller | undefined): Sessions {
    return new Sessions(this.#connections, this.#service, caller);
  }

  /**
   * Makes a session. A host's is leased to this process. `already_exists`, `quota_exceeded`,
   * `invalid_argument`.
   */
  async create(options: CreateOptions = {}): Promise<Session> {
    const { id, binding, lifetimes, status, metadata } = options;
    const request = present({
      // Of our own, so that the call may be repeated. Where a host owns it, the request alone tells.
      session: id ?? (this.#service === undefined ? undefined : uuidV7()),
      service: this.#service,
      request: requestId(),
      binding,
      lifetimes: toLifetimes(lifetimes),
      status: toStatus(status),
      metadata: metadata === undefined ? undefined : jsonText(metadata),
    });
    const made = (await this.#call('create_session', request)) as Wire;
    return this.#had(made, binding?.caller);
  }

  /**
   * Takes a session up by its id: one that lives. A host's is leased to this process. `unknown_session`,
   * `session_terminated`,
   * `binding_mismatch`; for a host's `session_held`.
   */
  async open(id: string): Promise<Session> {
    return (await this.openWithView(id)).session;
  }

  /** The same, with the session as it is now. */
  async openWithView(id: string): Promise<{ session: Session; view: SessionView }> {
    const of = present({ session: id, service: this.#service, caller: this.#caller });
    const opened = (await this.#call('open_session', of)) as Wire;
    return { session: this.#had(opened, this.#caller), view: fromView(opened) };
  }

  /** A service's session of this id, on behalf of this caller. Nothing is sent. @internal */
  at(id: string): Session {
    return this.#had({ session: id }, this.#caller);
  }

  /**
   * Takes up the session that a handle belongs to. `unknown_handle`, `handle_expired`; those of {@link open}.
   */
  async openHandle(handle: string): Promise<Session> {
    const request = present({ handle, service: this.#service, caller: this.#caller });
    const found = (await this.#call('open_handle', request)) as Wire;
    // A handle leads to a host's session, and gives no lease.
    return this.#service === undefined ? this.open(found['session']) : this.#had(found, this.#caller);
  }

  /**
   * All of them, in order of their ids, without metadata. Those that were terminated are among them for a
   * while.
   */
  async list(): Promise<SessionView[]> {
    const all: SessionView[] = [];
    for (;;) {
      const request = present({ service: this.#service, after: all.at(-1)?.id });
      const page = (await this.#call('list_own_sessions', request)) as Wire[];
      if (page.length === 0) return all;
      all.push(...page.map(fromView));
    }
  }

  /**
   * The secret of the service, which all its processes share: for what clients bring back, such as the
   * `requestState` of MCP 2026-07-28. The daemon makes it at the first call.
   */
  secret(): Promise<Secret> {
    return this.#secret({});
  }

  /**
   * Puts a new key in the place of the current one, which still counts for 24 hours. `quota_exceeded` where
   * eight of them do.
   */
  rotateSecret(): Promise<Secret> {
    return this.#secret({ rotate: true, request: requestId() });
  }

  /** Connects to the daemon, which is started where none runs. Rejects where it can't be reached. @internal */
  async reach(): Promise<void> {
    await this.#connections.calls.connect(new Deadline(this.#connections.timeoutMs));
  }

  /** Ends the connections to the daemon. The next call makes others. */
  hangUp(): void {
    this.#connections.hangUp();
  }

  #had(view: Wire, caller: Caller | undefined): Session {
    return new Session(this.#connections, view['session'], this.#accessOf(view), caller);
  }

  #accessOf(view: Wire): Access {
    if (this.#service !== undefined) return { service: this.#service };
    const epoch = view['epoch'] as string | undefined;
    if (epoch === undefined) throw new SessiondError('unknown', 'the daemon gave no lease');
    return { epoch: () => Promise.resolve(epoch) };
  }

  async #secret(fields: Wire): Promise<Secret> {
    const said = (await this.#call('service_secret', present({ service: this.#service, ...fields }))) as Wire;
    const bytes = (text: string) => new Uint8Array(Buffer.from(text, 'base64url'));
    return { current: bytes(said['current']), former: ((said['former'] ?? []) as string[]).map(bytes) };
  }

  #call(method: string, params: Wire): Promise<unknown> {
    return this.#connections.call({ method, params: () => params });
  }
}

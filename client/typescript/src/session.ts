// One session: its life, its state, what it has said. Streams are in stream.ts.
import type { Call } from './calls.js';
import { Cancelled, type Connection } from './connection.js';
import { isCode, SessiondError } from './errors.js';
import { pause } from './patience.js';
import { Attachment } from './attachment.js';
import type { Line } from './line.js';
import { openStream, Stream, STANDALONE } from './stream.js';
import type {
  Caller, Cursor, FoundEvent, Minted, Replayed, SessionView, StateEntry, StateKeyInfo, StateWrite, StreamView, Update,
} from './types.js';
import {
  credential, fromFound, fromReplayed, fromStream, fromView, jsonText, only, present, requestId, toCursor, toLifetimes,
  toStatus, type Wire,
} from './wire.js';

/** Entries in a page of a list. */
const PAGE_MAX = 100;
/** The longest `wait`, in ms. */
const WAIT_MAX_MS = 25_000;
/** The pause after a `wait` that ended early with nothing to tell, in ms: the daemon is about to exit. */
const ENDED_EARLY_PAUSE_MS = 50;
/** How long a credential stays good that was rotated out, in ms: longer than a request to the server is under way. */
const GRACE_MS = 60_000;

/** By what right a session is changed: as a service's, or under the lease of a host's. */
export type Hold = { service: string } | { epoch: () => Promise<string> };

/** The fields of a SessionRef. */
export interface Named {
  session: string;
  service?: string;
  epoch?: string;
  caller?: Caller;
}

/**
 * A session of a host's or of a service's. Calls may be made without waiting for others. One whose answer is lost is made
 * again without further effect: a message is not appended twice. Every call rejects with a {@link SessiondError}; beside the
 * codes that each names there are those of every change: `unknown_session`, `session_terminated`, `binding_mismatch`,
 * `quota_exceeded`, and where a host owns it `stale_epoch` and `lease_ended`.
 */
export class Session {
  /** Its id. */
  readonly id: string;
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

  /** The same session, asked for by this caller of the server. Where it is bound to another, calls are refused. */
  onBehalfOf(caller: Caller | undefined): Session {
    return new Session(this.#line, this.id, this.#hold, caller);
  }

  /** The session as it is now, also when it was terminated. */
  async view(): Promise<SessionView> {
    return fromView(await this.read('get_session') as Wire);
  }

  /** Changes status, metadata or lifetimes. `invalid_argument` for the status `terminated`: {@link terminate} ends a session. */
  async update({ status, metadata, lifetimes }: Update): Promise<SessionView> {
    const fields = present({
      status: toStatus(status), lifetimes: toLifetimes(lifetimes),
      metadata: metadata === undefined ? undefined : jsonText(metadata),
    });
    return fromView(await this.change('update_session', fields) as Wire);
  }

  /** Says that the session is in use, which every other call does, too. */
  async touch(): Promise<void> {
    await this.#call({ method: 'touch_session', params: () => this.#named() });
  }

  /** Empties the session: state, streams and events go, and former event ids are nothing any more. */
  async reset(): Promise<SessionView> {
    const request = requestId();
    const params = async (connection: Connection) => (
      { ...await this.#named(), ...(connection.hello.takesRequests ? { request } : {}) });
    return fromView(await this.#call({ method: 'reset_session', params }) as Wire);
  }

  /** Ends the session, once and for all. What is left says so, for a while. */
  async terminate(): Promise<void> {
    let tries = 0;
    const params = () => {
      tries++;
      return this.#named();
    };
    try {
      await this.#call({ method: 'terminate_session', params });
    } catch (error) {
      // A host's session that has ended is none of its sessions, to whoever would change it.
      if (!(tries > 1 && isCode(error, 'unknown_session'))) throw error;
    }
  }

  /** A client has come: the grace period stops, until the attachment is detached or this process exits. */
  attach(): Promise<Attachment> {
    return Attachment.make(this.#line, () => this.#named());
  }

  /**
   * Binds the session to a new credential, of which only the hash is sent. The former one stays good for a minute at least.
   * This object asks by the new one from now on. `invalid_argument` where it is bound to no credential.
   */
  async rotateCredential(secret: string | Uint8Array): Promise<void> {
    const caller = credential(secret);
    // The call may be repeated as the former caller, which must not have become a stranger by then.
    const grace = Math.max(GRACE_MS, this.#line.timeoutMs * 2);
    await this.change('rotate_credential', { hash: (caller as { hash: string }).hash, grace_ms: String(grace) });
    this.#caller = caller;
  }

  /** Makes a handle, by which `Sessions.openHandle` finds the session again. `lifeMs`: at most what is configured. */
  async mintHandle(lifeMs?: number): Promise<Minted> {
    const life = lifeMs === undefined ? undefined : String(lifeMs);
    const { handle, expires_ms } = await this.change('mint_handle', present({ life_ms: life })) as Wire;
    return { handle, expiresMs: Number(expires_ms) };
  }

  /** The value of a key; undefined where it has none. */
  async get<T = unknown>(key: string): Promise<T | undefined> {
    return (await this.entry<T>(key)).value;
  }

  /** A key with its value and its version, which is 0 where there is no value. */
  async entry<T = unknown>(key: string): Promise<StateEntry<T>> {
    return only(await this.entries<T>([key]));
  }

  /** 1 to 50 keys at once, in their order. `invalid_argument` also where the values have more than 3 MiB together. */
  async entries<T = unknown>(keys: string[]): Promise<StateEntry<T>[]> {
    const read = await this.read('read_state', { keys }) as Wire[];
    return read.map(({ key, version, value }) => (
      { key, version: BigInt(version), ...(value == null ? {} : { value: JSON.parse(value) as T }) }));
  }

  /** All keys that have a value, in their order. */
  async keys(): Promise<StateKeyInfo[]> {
    const all = await this.#pages('list_state', (last) => last['key']);
    return all.map(({ key, version, bytes }) => ({ key, version: BigInt(version), bytes }));
  }

  /** Writes a value that JSON has, whatever was there. Returns its version. */
  async set(key: string, value: unknown): Promise<bigint> {
    return only(await this.write([{ key, value: checked(value) }])).version;
  }

  /** Removes a value, if there is one. */
  async remove(key: string): Promise<void> {
    await this.write([{ key }]);
  }

  /**
   * Writes a value only if the key is at this version; 0n: only if it has none. `undefined` removes it. Returns the new version.
   * `version_conflict`: somebody else has written since. `uncertain`: so it may be, or this was written.
   */
  async compareAndSet(key: string, expected: bigint, value: unknown): Promise<bigint> {
    return only(await this.write([{ key, value, expected }])).version;
  }

  /** Writes and removes 1 to 50 values, all or none. Returns their versions, in the order of the writes. */
  async write(writes: StateWrite[]): Promise<{ key: string; version: bigint }[]> {
    const request = requestId();
    const wire = writes.map(({ key, value, expected }) => present({
      key, value: value === undefined ? undefined : jsonText(value),
      expected: expected === undefined ? undefined : String(expected),
    }));
    let tries = 0;
    const params = async (connection: Connection) => {
      tries++;
      return { of: await this.#named(), writes: wire, ...(connection.hello.takesRequests ? { request } : {}) };
    };
    try {
      const written = await this.#call({ method: 'write_state', params }) as Wire[];
      return written.map(({ key, version }) => ({ key, version: BigInt(version) }));
    } catch (error) {
      if (tries < 2 || !isCode(error, 'version_conflict')) throw error;
      // What stands in the way may be what the first attempt has written.
      const sentence = `the answer to a write was lost, and then ${error.message}: whether it was carried out is not known`;
      throw new SessiondError('uncertain', sentence, error.fields);
    }
  }

  /** The standalone stream, which is always open. */
  get standalone(): Stream {
    return this.stream(STANDALONE);
  }

  /** A stream that was opened before. */
  stream(id: string): Stream {
    return new Stream(this, id);
  }

  /**
   * Opens a stream, unless it is open: 1 to 128 visible ASCII characters. `openedBy`: the id of the request that it answers.
   * `will`: a message that the daemon appends, and with which it closes the stream, within a second after this process has
   * exited, if the stream is open then; a daemon that is older than wills keeps none. `stream_closed`, `invalid_argument`.
   */
  async openStream(id: string, options: { openedBy?: unknown; will?: unknown } = {}): Promise<Stream> {
    await openStream(this, id, options);
    return this.stream(id);
  }

  /** All streams that can be replayed, in order of their ids. */
  async streams(): Promise<StreamView[]> {
    return (await this.#pages('list_streams', (last) => last['stream'])).map(fromStream);
  }

  /** Deletes the oldest events, so that at most `keep` stay. Whoever comes for one is told of the gap. Returns how many. */
  async prune(keep: number): Promise<bigint> {
    return BigInt((await this.change('prune_events', { keep: String(keep) }) as Wire)['events']);
  }

  /** The stream of an event id, and whether that stream is complete. `unknown_cursor`. */
  async findEvent(event: string): Promise<FoundEvent> {
    return fromFound(await this.read('find_event', { event }) as Wire);
  }

  /** What was said after a place: one page, and where the next one begins. `unknown_cursor`, `unknown_stream`. */
  async replay(after: Cursor): Promise<Replayed> {
    return fromReplayed(await this.read('replay', { after: toCursor(after) }) as Wire);
  }

  /** All that was said after a place, as one page. */
  async replayAll(after: Cursor): Promise<Replayed> {
    const all = await this.replay(after);
    while (all.more && all.next.length === 1) {
      const { events, gaps, ...rest } = await this.replay(all.next[0]!);
      Object.assign(all, rest, { events: [...all.events, ...events], gaps: [...all.gaps, ...gaps] });
    }
    return all;
  }

  /**
   * What is said next after 1 to 64 places in different streams, or after one number. Where nothing is said within `ms`, or
   * `signal` is aborted, there are no events; `next` is where to go on either way. Other calls are not kept waiting.
   */
  async wait(after: Cursor[], ms: number, signal?: AbortSignal): Promise<Replayed> {
    const until = performance.now() + ms;
    for (let places = after; ;) {
      const left = Math.max(0, until - performance.now());
      const part = Math.min(left, WAIT_MAX_MS);
      const began = performance.now();
      const page = await this.#waitOnce(places, part, signal);
      const over = signal?.aborted || performance.now() >= until;
      if (page.events.length > 0 || page.gaps.length > 0 || page.ended.length > 0 || over) return page;
      places = page.next;
      if (performance.now() - began < part) await pause(Math.min(ENDED_EARLY_PAUSE_MS, part));
    }
  }

  async #waitOnce(after: Cursor[], ms: number, signal?: AbortSignal): Promise<Replayed> {
    const until = performance.now() + ms;
    const params = async () => {
      // What was waited before a connection broke counts.
      const left = Math.max(0, Math.ceil(until - performance.now()));
      return { of: this.#reading(), after: after.map(toCursor), timeout_ms: Math.min(left, WAIT_MAX_MS) };
    };
    try {
      return fromReplayed(await this.#line.wait({ method: 'wait', params, signal }, ms) as Wire);
    } catch (error) {
      if (!(error instanceof Cancelled)) throw error;
      return { events: [], gaps: [], next: after, more: false, ended: [] };
    }
  }

  /** A call that changes the session. @internal */
  change(method: string, fields: Wire = {}, daemon?: (connection: Connection) => Wire): Promise<unknown> {
    const params = async (connection: Connection) => (
      { of: await this.#named(), ...fields, ...daemon?.(connection) });
    return this.#call({ method, params });
  }

  /** A call that changes nothing. @internal */
  read(method: string, fields?: Wire): Promise<unknown> {
    const of = this.#reading();
    return this.#call({ method, params: () => (fields ? { of, ...fields } : of) });
  }

  async #pages(method: string, keyOf: (last: Wire) => string): Promise<Wire[]> {
    const all: Wire[] = [];
    for (;;) {
      const last = all.at(-1);
      const page = await this.read(method, last ? { after: keyOf(last) } : {}) as Wire[];
      all.push(...page);
      if (page.length < PAGE_MAX) return all;
    }
  }

  #call(call: Call): Promise<unknown> {
    return this.#line.call(call);
  }

  #reading(): Named {
    return {
      session: this.id,
      ...('service' in this.#hold ? { service: this.#hold.service } : {}),
      ...(this.#caller ? { caller: this.#caller } : {}),
    };
  }

  async #named(): Promise<Named> {
    const named = this.#reading();
    return 'epoch' in this.#hold ? { ...named, epoch: await this.#hold.epoch() } : named;
  }
}

/** `undefined` would remove the key. */
function checked(value: unknown): unknown {
  if (value === undefined) throw new SessiondError('invalid_argument', '`undefined` is no JSON; `remove` deletes a value');
  return value;
}

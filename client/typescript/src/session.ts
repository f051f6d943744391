// A session: its life, its state, its streams and events, and its tasks. How each call names the session is in
// session-calls.ts.
import { Attachment } from './attachment.js';
import { isCode, SessiondError } from './errors.js';
import { SessionCalls } from './session-calls.js';
import { openStream, pruneEvents, STANDALONE, Stream } from './stream.js';
import { createTask, fromTask, Task } from './task.js';
import type {
  Caller,
  Cursor,
  FoundEvent,
  Minted,
  Replayed,
  SessionView,
  StateEntry,
  StateKeyInfo,
  StateWrite,
  StreamView,
  TaskOptions,
  TaskView,
  Update,
} from './types.js';
import {
  credential,
  fromFound,
  fromReplayed,
  fromStream,
  fromView,
  jsonText,
  only,
  present,
  requestId,
  toCursor,
  toLifetimes,
  toStatus,
  type Wire,
} from './wire.js';

/** How long a credential stays good that was rotated out, in ms: longer than a request is under way. */
const GRACE_MS = 60_000;

/**
 * A session of a host's or of a service's. Calls may be made without waiting for others. One whose answer is
 * lost is made again without further effect: a message is not appended twice. Every call rejects with a
 * {@link SessiondError}; beside the codes that each names there are those of every change: `unknown_session`,
 * `session_terminated`, `binding_mismatch`, `quota_exceeded`, and where a host owns it `stale_epoch` and
 * `lease_ended`.
 */
export class Session extends SessionCalls {
  /** The same session, asked for by this caller. Where it is bound to another, calls are refused. */
  onBehalfOf(caller: Caller | undefined): Session {
    return new Session(this.connections, this.id, this.access, caller);
  }

  /** The session as it is now, also when it was terminated. */
  async view(): Promise<SessionView> {
    return fromView((await this.read('get_session')) as Wire);
  }

  /**
   * Changes status, metadata or lifetimes. `invalid_argument` for the status `terminated`: {@link terminate}
   * ends a session.
   */
  async update({ status, metadata, lifetimes }: Update): Promise<SessionView> {
    const fields = present({
      status: toStatus(status),
      lifetimes: toLifetimes(lifetimes),
      metadata: metadata === undefined ? undefined : jsonText(metadata),
    });
    return fromView((await this.change('update_session', fields)) as Wire);
  }

  /** Says that the session is in use, which every other call does, too. */
  async touch(): Promise<void> {
    await this.call({ method: 'touch_session', params: () => this.changeRef() });
  }

  /** Empties the session: state, streams and events go, and former event ids are nothing any more. */
  async reset(): Promise<SessionView> {
    const request = requestId();
    const params = async () => ({ ...(await this.changeRef()), request });
    return fromView((await this.call({ method: 'reset_session', params })) as Wire);
  }

  /** Ends the session, once and for all. What is left says so, for a while. */
  async terminate(): Promise<void> {
    let tries = 0;
    const params = () => {
      tries++;
      return this.changeRef();
    };
    try {
      await this.call({ method: 'terminate_session', params });
    } catch (error) {
      // A host's session that has ended is unknown: the answer to the first attempt was lost.
      if (!(tries > 1 && isCode(error, 'unknown_session'))) throw error;
    }
  }

  /** A client has come: the grace period stops, until the attachment is detached or this process exits. */
  attach(): Promise<Attachment> {
    return Attachment.make(this.connections, () => this.changeRef());
  }

  /**
   * Binds the session to a new credential, of which only the hash is sent. The former one stays good for a
   * minute at least. This object asks by the new one from now on. `invalid_argument` where it is bound to no
   * credential.
   */
  async rotateCredential(secret: string | Uint8Array): Promise<void> {
    const caller = credential(secret);
    // The call may be repeated as the former caller, which must not have become a stranger by then.
    const grace = Math.max(GRACE_MS, this.connections.timeoutMs * 2);
    await this.change('rotate_credential', {
      hash: (caller as { hash: string }).hash,
      grace_ms: String(grace),
    });
    this.caller = caller;
  }

  /**
   * Makes a handle, by which `Sessions.openHandle` finds the session again. `lifeMs`: at most what is
   * configured.
   */
  async mintHandle(lifeMs?: number): Promise<Minted> {
    const life = lifeMs === undefined ? undefined : String(lifeMs);
    const { handle, expires_ms } = (await this.change('mint_handle', present({ life_ms: life }))) as Wire;
    return { handle, expiresMs: Number(expires_ms) };
  }

  // State: JSON values by key, each with a version.

  /** The value of a key; undefined where it has none. */
  async get<T = unknown>(key: string): Promise<T | undefined> {
    return (await this.entry<T>(key)).value;
  }

  /** A key with its value and its version, which is 0 where there is no value. */
  async entry<T = unknown>(key: string): Promise<StateEntry<T>> {
    return only(await this.entries<T>([key]));
  }

  /**
   * 1 to 50 keys at once, in their order. `invalid_argument` also where the values have more than 3 MiB
   * together.
   */
  async entries<T = unknown>(keys: string[]): Promise<StateEntry<T>[]> {
    const read = (await this.read('read_state', { keys })) as Wire[];
    return read.map(({ key, version, value }) => ({
      key,
      version: BigInt(version),
      ...(value == null ? {} : { value: JSON.parse(value) as T }),
    }));
  }

  /** All keys that have a value, in their order. */
  async keys(): Promise<StateKeyInfo[]> {
    const all = await this.pages('list_state', (last) => last['key']);
    return all.map(({ key, version, bytes, expires_ms }) => ({
      key,
      version: BigInt(version),
      bytes,
      ...(expires_ms == null ? {} : { expiresMs: Number(expires_ms) }),
    }));
  }

  /**
   * Writes a value that JSON has, whatever was there. Returns its version. With `expiresMs` it goes by itself
   * after so many ms, at least 1.
   */
  async set(key: string, value: unknown, { expiresMs }: { expiresMs?: number } = {}): Promise<bigint> {
    const write = { key, value: checked(value), ...(expiresMs === undefined ? {} : { expiresMs }) };
    return only(await this.write([write])).version;
  }

  /** Removes a value, if there is one. */
  async remove(key: string): Promise<void> {
    await this.write([{ key }]);
  }

  /**
   * Writes a value only if the key is at this version; 0n: only if it has none. `undefined` removes it.
   * Returns the new version.
   * `version_conflict`: somebody else has written since. `uncertain`: so it may be, or this was written.
   */
  async compareAndSet(key: string, expected: bigint, value: unknown): Promise<bigint> {
    return only(await this.write([{ key, value, expected }])).version;
  }

  /** Writes and removes 1 to 50 values, all or none. Returns their versions, in the order of the writes. */
  async write(writes: StateWrite[]): Promise<{ key: string; version: bigint }[]> {
    const request = requestId();
    // A value that JSON can't have is refused here, before anything is sent.
    const wire = writes.map(({ key, value, expected, expiresMs }) =>
      present({
        key,
        value: value === undefined ? undefined : jsonText(value),
        expected: expected === undefined ? undefined : String(expected),
        expires_ms: expiresMs === undefined ? undefined : String(expiresMs),
      }),
    );
    let tries = 0;
    const params = async () => {
      tries++;
      return { of: await this.changeRef(), writes: wire, request };
    };
    try {
      const written = (await this.call({ method: 'write_state', params })) as Wire[];
      return written.map(({ key, version }) => ({ key, version: BigInt(version) }));
    } catch (error) {
      if (tries < 2 || !isCode(error, 'version_conflict')) throw error;
      // What stands in the way may be what the first attempt has written.
      const lost = `the answer to a write was lost, and then ${error.message}`;
      throw new SessiondError('uncertain', `${lost}: whether it was carried out is not known`, error.fields);
    }
  }

  // Streams and events.

  /** The standalone stream, which is always open. */
  get standalone(): Stream {
    return this.stream(STANDALONE);
  }

  /** A stream that was opened before. */
  stream(id: string): Stream {
    return new Stream(this, id);
  }

  /**
   * Opens a stream, unless it is open: 1 to 128 visible ASCII characters. `openedBy`: the id of the request
   * that it answers. `will`: a message that the daemon appends, and with which it closes the stream, within a
   * second after this process has exited, if the stream is open then.
   * `stream_closed`, `invalid_argument`.
   */
  async openStream(id: string, options: { openedBy?: unknown; will?: unknown } = {}): Promise<Stream> {
    await openStream(this, id, options);
    return this.stream(id);
  }

  /** All streams that can be replayed, in order of their ids. */
  async streams(): Promise<StreamView[]> {
    return (await this.pages('list_streams', (last) => last['stream'])).map(fromStream);
  }

  /**
   * Deletes the oldest events, so that at most `keep` stay. A client that asks for one gets a gap. Returns
   * how many.
   */
  async prune(keep: number): Promise<bigint> {
    return pruneEvents(this, keep);
  }

  /** The stream of an event id, and whether that stream is complete. `unknown_cursor`. */
  async findEvent(event: string): Promise<FoundEvent> {
    return fromFound((await this.read('find_event', { event })) as Wire);
  }

  /**
   * What was said after a place: one page, and where the next one begins. `most`: of so many events, which the
   * daemon may make fewer. `unknown_cursor`, `unknown_stream`.
   */
  async replay(after: Cursor, most?: number): Promise<Replayed> {
    return fromReplayed((await this.read('replay', present({ after: toCursor(after), most }))) as Wire);
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
   * What is said next after 1 to 64 places in different streams, or after one number. Where nothing is said
   * within `ms`, or `signal` is aborted, there are no events; `next` is where to go on either way. Other
   * calls are not kept waiting.
   */
  wait(after: Cursor[], ms: number, signal?: AbortSignal): Promise<Replayed> {
    let places = after;
    const found = (answer: Wire | undefined): Replayed => {
      const page = answer
        ? fromReplayed(answer)
        : { events: [], gaps: [], next: places, more: false, ended: [] };
      places = page.next;
      return page;
    };
    const isOver = ({ events, gaps, ended }: Replayed) => events.length + gaps.length + ended.length > 0;
    return this.waiting('wait', () => ({ after: places.map(toCursor) }), { found, isOver }, ms, signal);
  }

  // Tasks.

  /**
   * Creates a task, which is kept when this resolves: its id may be told then. If this process exits before
   * the task has ended, the task has failed, and its error says that the outcome is unknown.
   * `quota_exceeded`: all of the session's tasks are under way.
   */
  async createTask(options: TaskOptions = {}): Promise<{ task: Task; view: TaskView }> {
    const view = await createTask(this, options);
    return { task: this.task(view.id), view };
  }

  /** The task of this id. Nothing is sent. */
  task(id: string): Task {
    return new Task(this, id);
  }

  /** All tasks, in order of their ids, without their requests and results. */
  async tasks(): Promise<TaskView[]> {
    return (await this.pages('list_tasks', (last) => last['task'])).map(fromTask);
  }
}

/** `undefined` would remove the key. */
function checked(value: unknown): unknown {
  if (value === undefined)
    throw new SessiondError('invalid_argument', '`undefined` is not JSON; `remove` deletes a value');
  return value;
}

// What a session has said, and what it says next.
import { Cancelled } from './connection.js';
import { pause } from './patience.js';
import type { Session } from './session.js';
import { SessionState } from './session-state.js';
import { openStream, STANDALONE, Stream } from './stream.js';
import type { Cursor, FoundEvent, Replayed, StreamView } from './types.js';
import { fromFound, fromReplayed, fromStream, present, toCursor, type Wire } from './wire.js';

/** The longest `wait`, in ms. */
const WAIT_MAX_MS = 25_000;
/** The pause after a `wait` that ended early with nothing to tell, in ms: the daemon is about to exit. */
const ENDED_EARLY_PAUSE_MS = 50;

/** The calls about streams and events of a session. */
export class SessionEvents extends SessionState {
  /** The standalone stream, which is always open. */
  get standalone(): Stream {
    return this.stream(STANDALONE);
  }

  /** A stream that was opened before. */
  stream(id: string): Stream {
    // `Session` is the only class that extends this one.
    return new Stream(this as unknown as Session, id);
  }

  /**
   * Opens a stream, unless it is open: 1 to 128 visible ASCII characters. `openedBy`: the id of the request
   * that it answers. `will`: a message that the daemon appends, and with which it closes the stream, within a
   * second after this process has exited, if the stream is open then; a daemon that is older than wills keeps
   * none. `stream_closed`, `invalid_argument`.
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
   * Deletes the oldest events, so that at most `keep` stay. Whoever comes for one is told of the gap. Returns
   * how many.
   */
  async prune(keep: number): Promise<bigint> {
    return BigInt(((await this.change('prune_events', { keep: String(keep) })) as Wire)['events']);
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
  async wait(after: Cursor[], ms: number, signal?: AbortSignal): Promise<Replayed> {
    const until = performance.now() + ms;
    for (let places = after; ; ) {
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
    const fields = () => {
      // What was waited before a connection broke counts.
      const left = Math.max(0, Math.ceil(until - performance.now()));
      return { after: after.map(toCursor), timeout_ms: Math.min(left, WAIT_MAX_MS) };
    };
    try {
      return fromReplayed((await this.waiting('wait', fields, ms, signal)) as Wire);
    } catch (error) {
      if (!(error instanceof Cancelled)) throw error;
      return { events: [], gaps: [], next: after, more: false, ended: [] };
    }
  }
}

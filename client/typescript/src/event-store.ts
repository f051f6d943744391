// The official SDK's `EventStore`, for one session.
import { Appender } from './appender.js';
import { isCode } from './errors.js';
import { warner, type Logger, type Warn } from './options.js';
import type { Session } from './session.js';
import { STANDALONE, type Stream } from './stream.js';
import { jsonText, redacted } from './wire.js';

/** Streams that are kept open after an answer: a batch has several. */
const ANSWERED_MAX = 16;

/** What the SDK's transports ask of an event store, in v1 (from 1.10 on) and v2. */
export interface EventStore {
  storeEvent(streamId: string, message: unknown): Promise<string>;
  getStreamIdForEventId(eventId: string): Promise<string | undefined>;
  replayEventsAfter(
    lastEventId: string,
    to: { send: (eventId: string, message: any) => Promise<void> },
  ): Promise<string>;
}

/** Whether the SDK means a priming event: an id without a message. */
export function isPriming(message: unknown): boolean {
  return typeof message === 'object' && message !== null && Object.keys(message).length === 0;
}

/** Whether a message answers a request. */
export function isAnswer(message: unknown): boolean {
  return typeof message === 'object' && message !== null && 'id' in message && !('method' in message);
}

/** The id of a POST's stream in the daemon. */
const kept = (streamId: string): string => (streamId === STANDALONE ? STANDALONE : `post-${streamId}`);

/** The id that the SDK knows a stream by. */
const told = (id: string): string => id.replace(/^post-/, '');

/**
 * Keeps what a transport of the official SDK has sent, for clients that come back with `Last-Event-ID`, also
 * to another process. One store serves one session: give each transport its own.
 *
 * ```ts
 * const session = await sessions.create();
 * const transport = new StreamableHTTPServerTransport({
 *   sessionIdGenerator: () => session.id, eventStore: new SessionEventStore(session),
 * });
 * ```
 *
 * `storeEvent` never rejects, since the SDK would not send the message then. Where a message can't be kept,
 * that is logged once, and its id is empty. It has no last will, since the interface does not tell which
 * request a stream belongs to; `durable` does all of it.
 */
export class SessionEventStore implements EventStore {
  readonly #session: Session;
  readonly #warn: Warn;
  readonly #takesOver: boolean;
  readonly #streams = new Map<string, Promise<Appender>>();
  readonly #answered: string[] = [];
  #failing = false;

  /**
   * `takesOver: false`: a client that comes back gets 409 for as long as the SDK takes its previous connection for read. That is for the
   * SDK 1.24 to 1.29, which does not end the previous connection: what is sent after that breaks would be lost.
   */
  constructor(session: Session, options: { log?: Logger; takesOver?: boolean } = {}) {
    this.#session = session;
    this.#takesOver = options.takesOver ?? true;
    this.#warn = warner(options.log);
  }

  /** Keeps a message. Its event id; empty where it could not be kept. */
  async storeEvent(streamId: string, message: unknown): Promise<string> {
    try {
      const appender = await this.#appender(kept(streamId));
      const { id } = await appender.append(isPriming(message) ? null : jsonText(message));
      if (isAnswer(message)) this.#closeLater(kept(streamId));
      this.#failing = false;
      return id;
    } catch (error) {
      if (!this.#failing)
        this.#warn(`messages of session ${redacted(this.#session.id)} are not kept: ${String(error)}`);
      this.#failing = true;
      return '';
    }
  }

  /**
   * A name for the stream of an event. Undefined: there is no such event, or it can't be found now, and the SDK answers 400.
   *
   * It is not the SDK's own name, unless `takesOver` is false. By that the SDK refuses (409) a client that comes back, as long as it
   * takes the stream for read: a connection that broke without a word looks read for minutes. The replay gives the SDK's name, and
   * the SDK then ends the previous connection.
   */
  async getStreamIdForEventId(eventId: string): Promise<string | undefined> {
    try {
      const id = told((await this.#session.findEvent(eventId)).stream.id);
      return this.#takesOver ? `resumed-${id}` : id;
    } catch {
      return undefined;
    }
  }

  /**
   * Sends what followed on an event in its stream, and returns the stream. Rejects for an unknown event: the
   * SDK expects that.
   */
  async replayEventsAfter(
    lastEventId: string,
    { send }: { send: (eventId: string, message: any) => Promise<void> },
  ): Promise<string> {
    const { stream } = await this.#session.findEvent(lastEventId);
    const { events } = await this.#session.replayAll({ event: lastEventId });
    for (const { id, json } of events) await send(id, JSON.parse(json));
    return told(stream.id);
  }

  #appender(id: string): Promise<Appender> {
    const known = this.#streams.get(id);
    if (known) return known;
    const opened = this.#open(id).then((stream) => new Appender(() => stream));
    this.#streams.set(id, opened);
    // Tried again at the next message.
    opened.catch(() => this.#streams.delete(id));
    return opened;
  }

  async #open(id: string): Promise<Stream> {
    if (id === STANDALONE) return this.#session.standalone;
    try {
      return await this.#session.openStream(id);
    } catch (error) {
      if (!isCode(error, 'quota_exceeded')) throw error;
      // A former process has left its streams open.
      const left = (await this.#session.streams()).filter(
        ({ id, closed }) => id.startsWith('post-') && !closed && !this.#streams.has(id),
      );
      await Promise.all(left.map(({ id }) => this.#session.stream(id).close()));
      return await this.#session.openStream(id);
    }
  }

  #closeLater(id: string): void {
    if (!this.#answered.includes(id)) this.#answered.push(id);
    const oldest = this.#answered.length > ANSWERED_MAX ? this.#answered.shift() : undefined;
    if (oldest === undefined) return;
    this.#streams.delete(oldest);
    this.#session
      .stream(oldest)
      .close()
      .catch(() => undefined);
  }
}

// The stream of a POST: opened with a will before the server gets its requests, closed with their last
// answer.
import { randomUUID } from 'node:crypto';
import { Appender } from '../appender.js';
import { isAnswer, isPriming } from '../event-store.js';
import { withRoom } from '../room.js';
import type { Session } from '../session.js';
import type { Stream } from '../stream.js';
import { jsonText } from '../wire.js';
import { notKept, outcomeUnknown } from './refusal.js';
import type { Message } from './sdk.js';

type Id = string | number;

/** Bytes that the id of a stream's request may have in the daemon, as JSON. */
const OPENED_BY_MAX = 256;

/** A POST whose requests are being carried out. */
export class Post {
  readonly #stream: Stream;
  readonly #appender: Appender;
  readonly #open: Set<Id>;

  private constructor(stream: Stream, open: Set<Id>) {
    this.#stream = stream;
    this.#appender = new Appender(() => stream);
    this.#open = open;
  }

  /**
   * Opens the stream of these requests. If this process ends before the answer, the daemon answers the
   * (first) request, "the outcome is unknown". Rejects with a `SessiondError`.
   */
  static async open(session: Session, requests: Message[]): Promise<Post> {
    const ids = requests.map(({ id }) => id!);
    const fits = Buffer.byteLength(jsonText(ids[0])) <= OPENED_BY_MAX;
    // The daemon keeps short ids beside a stream. The will has the whole id.
    const opened = { ...(fits ? { openedBy: ids[0] } : {}), will: outcomeUnknown(ids[0]!) };
    const stream = await withRoom(
      (keep) => session.prune(keep),
      () => session.openStream(`post-${randomUUID()}`, opened),
    );
    return new Post(stream, new Set(ids));
  }

  /**
   * Keeps a message. Its event id. Of an answer that can't be kept, that of the error which is kept in its place: who
   * gets the answer under it resumes behind it, and who does not gets the error. Rejects with a `SessiondError`.
   */
  async store(message: unknown): Promise<string> {
    const answered = isAnswer(message) ? (message as Message).id : undefined;
    const isLast = answered !== undefined && this.#open.size === 1 && this.#open.has(answered);
    let isClosed = isLast;
    try {
      const { id } = await this.#appender.append(isPriming(message) ? null : jsonText(message), isLast);
      return id;
    } catch (error) {
      if (answered === undefined) throw error;
      try {
        return (await this.#appender.append(jsonText(notKept(answered)), isLast)).id;
      } catch {
        isClosed = false;
        throw error;
      }
    } finally {
      if (isClosed) this.#open.clear();
      else if (answered !== undefined) this.answered(answered);
    }
  }

  /** The request is answered, or was cancelled. After the last one the stream is closed. */
  answered(id: Id): void {
    if (this.#open.delete(id) && this.#open.size === 0) this.close();
  }

  /** Closes the stream. Where that fails, the daemon does it when this process has ended. */
  close(): void {
    this.#open.clear();
    this.#stream.close().catch(() => undefined);
  }
}

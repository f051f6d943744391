// Appends to a stream, in the order of the calls: the daemon carries out the calls of one connection
// concurrently.
import { isCode } from './errors.js';
import { withRoom } from './room.js';
import { pruneEvents, type Stream } from './stream.js';
import type { Appended } from './types.js';

/** What goes into one append, fewer than the daemon takes: messages, and UTF-16 units of them. */
const MESSAGES_MAX = 256;
const UNITS_MAX = 512 * 1024;

interface Entry {
  json: string | null;
  close: boolean;
  resolve: (appended: Appended) => void;
  reject: (error: unknown) => void;
}

/** What waits while an append is under way goes with the next one, together. */
export class Appender {
  readonly #stream: () => Stream;
  #waiting: Entry[] = [];
  #busy = false;

  /** `stream`: the stream, on behalf of the caller that used it last. */
  constructor(stream: () => Stream) {
    this.#stream = stream;
  }

  /**
   * Appends a message, as JSON text; null: a priming event. It is kept when this resolves. `close`: the
   * stream is closed with it, and with what waits at that moment. Rejects as `Stream.append` does.
   */
  append(json: string | null, close = false): Promise<Appended> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ json, close, resolve, reject });
      if (!this.#busy) void this.#work();
    });
  }

  async #work(): Promise<void> {
    this.#busy = true;
    while (this.#waiting.length > 0) {
      const batch = this.#batch();
      if (await this.#appended(batch)) continue;
      // One of them was refused. The others need not suffer from it.
      for (const entry of batch) await this.#appended([entry], true);
    }
    this.#busy = false;
  }

  #batch(): Entry[] {
    let [count, units] = [0, 0];
    while (count < this.#waiting.length && count < MESSAGES_MAX) {
      units += this.#waiting[count]!.json?.length ?? 0;
      if (count > 0 && units > UNITS_MAX) break;
      count++;
    }
    return this.#waiting.splice(0, count);
  }

  /** Whether the entries are settled. */
  async #appended(batch: Entry[], last = batch.length === 1): Promise<boolean> {
    const texts = batch.map(({ json }) => json);
    const close = batch.some(({ close }) => close);
    const append = () => this.#stream().appendTexts(texts, undefined, { close });
    try {
      const places = await withRoom((keep) => pruneEvents(this.#stream().session, keep), append);
      batch.forEach(({ resolve }, at) => resolve(places[at]!));
    } catch (error) {
      if (!last && isCode(error, 'invalid_argument', 'quota_exceeded')) return false;
      for (const { reject } of batch) reject(error);
    }
    return true;
  }
}

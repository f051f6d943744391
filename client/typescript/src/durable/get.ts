// A GET: what a stream has said since the client has gone, then what it says. No server is needed for it.
import type { ServerResponse } from 'node:http';
import { isCode } from '../errors.js';
import { withRoom } from '../room.js';
import type { Session } from '../session.js';
import { STANDALONE } from '../stream.js';
import type { Cursor, Gap, Replayed, StreamView } from '../types.js';

/** The key of the state that tells how much of the standalone stream was sent: an event id. */
const DELIVERED_KEY = 'mcp.standalone';
/** The first version of MCP whose clients take an event without data. */
const PRIMES = '2025-11-25';
/** How long a wait lasts before a comment shows whether the client is there, in ms. */
const COMMENT_MS = 25_000;

/** What is read: of which stream, and from where. */
export interface Reading {
  stream: string;
  after: Cursor;
  /** The request that the stream answers. */
  openedBy: unknown;
  /** Whether the client has its answer. */
  answered: boolean;
}

/** Where a GET begins. Undefined: the stream was said to its end. Rejects with `unknown_cursor`. */
export async function begin(session: Session, lastEventId: string | undefined): Promise<Reading | undefined> {
  if (lastEventId !== undefined) {
    const { stream, number, ended } = await session.findEvent(lastEventId);
    if (ended) return undefined;
    const { id, openedBy } = stream;
    const answered = openedBy !== undefined && (await isAnswered(session, lastEventId, number, openedBy));
    return { stream: id, after: { event: lastEventId }, openedBy, answered };
  }
  const sent = await session.get<string>(DELIVERED_KEY);
  const known = sent === undefined ? undefined : await session.findEvent(sent).catch(unlessUnknown);
  return {
    stream: STANDALONE,
    after: known ? { event: sent! } : { stream: STANDALONE },
    openedBy: undefined,
    answered: false,
  };
}

/** Whether the event of this id and number answers the request that has opened its stream. */
async function isAnswered(
  session: Session,
  event: string,
  number: bigint,
  openedBy: unknown,
): Promise<boolean> {
  const { events } = await session.replay({ number: number - 1n }, 1);
  return events[0]?.id === event && isAnswerTo(openedBy, events[0].json);
}

function isAnswerTo(request: unknown, json: string): boolean {
  let message: { id?: unknown; method?: unknown } | null;
  try {
    message = JSON.parse(json);
  } catch {
    // Another client of the daemon has stored it.
    return false;
  }
  return message?.method === undefined && message?.id === request;
}

function unlessUnknown(error: unknown): undefined {
  if (!isCode(error, 'unknown_cursor')) throw error;
}

/** One reader of a stream. */
export class Reader {
  readonly #session: Session;
  readonly #reading: Reading;
  readonly #response: ServerResponse;
  readonly #gone = new AbortController();
  #answered: boolean;

  constructor(session: Session, reading: Reading, response: ServerResponse) {
    this.#session = session;
    this.#reading = reading;
    this.#answered = reading.answered;
    this.#response = response;
    response.once('close', () => this.#gone.abort());
  }

  /** Another reader has come. */
  end(): void {
    this.#gone.abort();
    this.#response.end();
  }

  /**
   * Reads until the stream has ended or the client has gone. `version`: of MCP, where the client has told it.
   */
  async read(version: string | undefined, retryMs: number): Promise<void> {
    const primed = version !== undefined && version >= PRIMES ? await this.#primed() : '';
    const headers = {
      'Content-Type': 'text/event-stream',
      'Cache-Control': 'no-cache, no-transform',
      'X-Accel-Buffering': 'no',
      Connection: 'keep-alive',
      'Mcp-Session-Id': this.#session.id,
    };
    this.#response.writeHead(200, headers);
    this.#response.flushHeaders();
    await this.#write(primed ? `id: ${primed}\nretry: ${retryMs}\ndata: \n\n` : `retry: ${retryMs}\n\n`);
    await this.#follow();
    this.#response.end();
  }

  /** An id for the client to come back with, before there is a message. */
  async #primed(): Promise<string> {
    const { after } = this.#reading;
    if ('event' in after) return after.event;
    const of: StreamView | undefined = (await this.#session.streams()).find(({ id }) => id === STANDALONE);
    // An id beyond a message that was not sent would lose it; so would none, which the first message makes up
    // for.
    if (of && of.events > 0) return '';
    const { id } = await withRoom(
      (keep) => this.#session.prune(keep),
      () => this.#session.standalone.prime(),
    );
    this.#reading.after = { event: id };
    return id;
  }

  async #follow(): Promise<void> {
    let after = this.#reading.after;
    for (let wait = 0; !this.#gone.signal.aborted; ) {
      const page =
        wait === 0
          ? await this.#session.replay(after)
          : await this.#session.wait([after], wait, this.#gone.signal);
      if (this.#gone.signal.aborted) return;
      await this.#deliver(page);
      if (page.ended.length > 0) return;
      after = page.next[0] ?? after;
      if (page.events.length === 0 && wait > 0) await this.#write(': waiting\n\n');
      wait = page.more ? 0 : COMMENT_MS;
    }
  }

  async #deliver({ events, gaps }: Replayed): Promise<void> {
    for (const gap of gaps) await this.#write(`event: message\ndata: ${JSON.stringify(gapNotice(gap))}\n\n`);
    // A line of JSON text that another client has stored may be broken.
    for (const { id, json } of events) {
      if (this.#isAnswer(json)) {
        // Of a batch, the first request may be answered, and the process killed before the others are: its
        // will answers the first one again, that the outcome is unknown.
        if (this.#answered) continue;
        this.#answered = true;
      }
      await this.#write(`event: message\nid: ${id}\ndata: ${json.replace(/[\r\n]+/g, ' ')}\n\n`);
    }
    const last = events.at(-1);
    if (last && this.#reading.stream === STANDALONE) await this.#session.set(DELIVERED_KEY, last.id);
  }

  /** Whether a message is the answer to the request that has opened the stream. */
  #isAnswer(json: string): boolean {
    const { openedBy } = this.#reading;
    return openedBy !== undefined && isAnswerTo(openedBy, json);
  }

  async #write(text: string): Promise<void> {
    if (this.#gone.signal.aborted || this.#response.write(text)) return;
    await new Promise<void>((resolve) => {
      this.#response.once('drain', resolve);
      this.#gone.signal.addEventListener('abort', () => resolve(), { once: true });
    });
  }
}

/** What a client is told of events that were deleted before it fetched them. */
function gapNotice({ first, last }: Gap): object {
  const count = last - first + 1n;
  const were = count === 1n ? 'message of this stream was' : 'messages of this stream were';
  const data = `${count} ${were} deleted before the client fetched them`;
  return {
    jsonrpc: '2.0',
    method: 'notifications/message',
    params: { level: 'warning', logger: 'mcp-sessiond', data },
  };
}

// The streams of a session, and what is appended to them.
import type { SessionCalls } from './session-calls.js';
import type { Appended, StreamView } from './types.js';
import { fromAppended, fromStream, jsonText, only, present, requestId, type Wire } from './wire.js';

/** The id of the standalone stream, which is always there. */
export const STANDALONE = '_GET_stream';

/** A stream of a session's. */
export class Stream {
  /** @internal */
  constructor(
    readonly session: SessionCalls,
    /** Its id. */ readonly id: string,
  ) {}

  /**
   * Appends a message. It is kept, once, when this returns its id. `close`: the stream is closed with it, in
   * one step, so that its last will does not follow on the message. `unknown_stream`, `stream_closed`.
   */
  async append(message: unknown, options?: { close?: boolean }): Promise<Appended> {
    return only(await this.appendAll([message], undefined, options));
  }

  /**
   * Appends 1 to 256 messages with 3 MiB together, all or none. `null`: a priming event, which has an id and
   * is not replayed.
   * `request`: an idempotency key. Repeating the call with the same one, also in another process, appends
   * nothing and returns the first answer, as long as the events can still be replayed.
   * `close`: the stream is closed with the messages. A repeated call closes it, too.
   */
  appendAll(messages: unknown[], request = requestId(), options?: { close?: boolean }): Promise<Appended[]> {
    return this.appendTexts(
      messages.map((message) => (message === null ? null : jsonText(message))),
      request,
      options,
    );
  }

  /** The same, with messages that are JSON text already. */
  async appendTexts(
    messages: (string | null)[],
    request = requestId(),
    { close = false }: { close?: boolean } = {},
  ): Promise<Appended[]> {
    const fields = { stream: this.id, request, messages, ...(close ? { close } : {}) };
    const appended = await this.session.change('append', fields);
    return (appended as Wire[]).map(fromAppended);
  }

  /** Appends a priming event: an id for a client to come back with, before there is a message. */
  async prime(): Promise<Appended> {
    return only(await this.appendTexts([null]));
  }

  /**
   * Closes the stream: nothing is appended any more. What it has said can be replayed. `invalid_argument`:
   * the standalone one.
   */
  close(): Promise<StreamView> {
    return this.#change('close_stream');
  }

  /**
   * The stream's reader is gone: from now on, messages other than answers go to the standalone stream.
   */
  orphan(): Promise<StreamView> {
    return this.#change('orphan_stream');
  }

  /** The stream's reader is back: everything goes to the stream again. */
  unorphan(): Promise<StreamView> {
    return this.#change('unorphan_stream');
  }

  async #change(method: string): Promise<StreamView> {
    return fromStream((await this.session.change(method, { stream: this.id })) as Wire);
  }
}

/** Opens a stream. */
export async function openStream(
  session: SessionCalls,
  id: string,
  { openedBy, will }: { openedBy?: unknown; will?: unknown },
): Promise<StreamView> {
  const text = (value: unknown) => (value === undefined ? undefined : jsonText(value));
  const fields = present({ stream: id, opened_by: text(openedBy), will: text(will) });
  return fromStream((await session.change('open_stream', fields)) as Wire);
}

/** Deletes the oldest events of a session, so that at most `keep` stay. How many were deleted. */
export async function pruneEvents(session: SessionCalls, keep: number): Promise<bigint> {
  return BigInt(((await session.change('prune_events', { keep: String(keep) })) as Wire)['events']);
}

// A session with the server that answers it in this process.
import { Appender } from '../appender.js';
import { isCode } from '../errors.js';
import type { EventStore } from '../eventstore.js';
import type { Session } from '../session.js';
import { jsonText, shown } from '../wire.js';
import { context, served } from './context.js';
import { Post } from './post.js';
import { handshake, record } from './record.js';
import { outcomeUnknown } from './refusal.js';
import type { HttpTransport, McpServerLike, Message, SendOptions, TransportClass } from './sdk.js';

/** What all sessions of one `durable` share. */
export interface Making {
  createServer: (session: Session) => McpServerLike | Promise<McpServerLike>;
  transport: TransportClass;
  retryMs: number;
  warn: (line: string) => void;
}

/** A server, its transport, and the POSTs that they work on. */
export class Live {
  /** On behalf of whoever used it last. */
  session: Session;
  readonly transport: HttpTransport;
  usedAt = performance.now();
  /** Whether the server was closed, by whomever. */
  isClosed = false;
  readonly #making: Making;
  readonly #posts = new Map<string | number, Post>();
  readonly #standalone: Appender;
  #server: McpServerLike | undefined;
  /** The parameters of an `initialize` that is not answered. */
  #initialize: { id: string | number; params: unknown } | undefined;
  #failing = false;

  private constructor(making: Making, session: Session) {
    this.#making = making;
    this.session = session;
    this.#standalone = new Appender(() => this.session.standalone);
    const { retryMs: retryInterval } = making;
    this.transport = new making.transport({
      sessionIdGenerator: () => session.id,
      eventStore: this.#eventStore(),
      retryInterval,
    });
    const send = this.transport.send.bind(this.transport);
    this.transport.send = (message: Message, options?: SendOptions) => this.#send(message, options, send);
  }

  /** Makes a server for a session, which gets its `initialize` next. */
  static async make(making: Making, session: Session): Promise<Live> {
    const live = new Live(making, session);
    live.#server = await making.createServer(session);
    await live.#server.connect(live.transport);
    const { onclose } = live.transport;
    live.transport.onclose = () => {
      live.#closed();
      onclose?.();
    };
    served.set(session.id, live);
    return live;
  }

  /** Whether the server works on something. */
  get isBusy(): boolean {
    return this.#posts.size > 0;
  }

  /** Opens the stream of a POST with these requests. Rejects with a `SessiondError`. */
  async open(session: Session, requests: Message[]): Promise<Post> {
    const post = await Post.open(session, requests);
    for (const { id, method, params } of requests) {
      this.#posts.set(id!, post);
      if (method === 'initialize') this.#initialize = { id: id!, params };
    }
    return post;
  }

  /** The client has cancelled a request: the server does not answer it. */
  cancelled(id: string | number): void {
    this.#posts.get(id)?.answered(id);
    this.#posts.delete(id);
    this.transport.closeSSEStream?.(id);
  }

  /** The SDK has refused a POST: the server gets none of its requests. */
  refused(post: Post): void {
    for (const id of post.unanswered) this.#posts.delete(id);
    post.close();
  }

  /** Ends the server. The session stays. */
  async close(): Promise<void> {
    if (served.get(this.session.id) === this) served.delete(this.session.id);
    await this.#server?.close().catch(() => undefined);
  }

  /** What the server has not answered it never will. */
  #closed(): void {
    this.isClosed = true;
    for (const [id, post] of this.#posts) void this.#kept(() => post.keep(outcomeUnknown(id)));
    this.#posts.clear();
  }

  /**
   * In place of the transport's own `send`, some of which drop what nobody reads at the moment. Nothing is
   * lost here.
   */
  async #send(
    message: Message,
    options: SendOptions | undefined,
    send: HttpTransport['send'],
  ): Promise<void> {
    const here = context.getStore();
    if (here?.repeated) return send(message, options);
    const isAnswer = message.method === undefined;
    const id = isAnswer ? message.id : options?.relatedRequestId;
    if (id === undefined) {
      await this.#kept(() => this.#standalone.append(jsonText(message)).then(({ id }) => id));
      return;
    }
    const post = this.#posts.get(id);
    // The SDK knows no such request either, and says so.
    if (!post) return send(message, options);
    if (isAnswer) await this.#answering(message);
    const sent = { kept: false };
    try {
      await context.run({ session: this.session, ...here, post, sent }, () => send(message, options));
    } catch (error) {
      // Nobody reads it now. Who comes back for it finds it.
      if (!sent.kept && !(await this.#kept(() => post.keep(message)))) throw error;
      return;
    }
    if (!sent.kept) await this.#kept(() => post.keep(message));
  }

  async #answering(message: Message): Promise<void> {
    this.usedAt = performance.now();
    this.#posts.delete(message.id!);
    const asked = this.#initialize;
    if (asked?.id !== message.id || message.result === undefined) return;
    this.#initialize = undefined;
    // Stored before the client knows its session.
    await this.#kept(() => record(this.session, handshake(asked?.params, message.result)).then(() => ''));
  }

  /**
   * The store that the transport gets. It asks it for the ids of what it writes to a POST, and for nothing
   * else.
   */
  #eventStore(): EventStore {
    return {
      storeEvent: async (_, message) => {
        const here = context.getStore();
        const { post, sent } = here ?? {};
        if (!post || here?.repeated) return '';
        const id = await this.#kept(() => post.keep(message));
        if (sent) sent.kept = true;
        return id ?? '';
      },
      getStreamIdForEventId: async () => undefined,
      replayEventsAfter: async () => '',
    };
  }

  /**
   * Never rejects, since the SDK would not send the message then: undefined where it can't be kept, which is
   * logged once.
   */
  async #kept(keep: () => Promise<string>): Promise<string | undefined> {
    try {
      const id = await keep();
      this.#failing = false;
      return id;
    } catch (error) {
      // Nobody misses what was to be said in a session that was ended.
      if (isCode(error, 'unknown_session', 'session_terminated')) return undefined;
      if (!this.#failing)
        this.#making.warn(`messages of session ${shown(this.session.id)} are not kept: ${String(error)}`);
      this.#failing = true;
      return undefined;
    }
  }
}

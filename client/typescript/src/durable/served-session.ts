// A session with the server that answers it in this process.
import type { ServerResponse } from 'node:http';
import { Appender } from '../appender.js';
import { isCode } from '../errors.js';
import type { EventStore } from '../event-store.js';
import type { Session } from '../session.js';
import { jsonText, redacted } from '../wire.js';
import type { App } from './app.js';
import { context, servedSessions } from './context.js';
import { Post } from './post.js';
import { bodyOf, RequestIds, asSent, type Id } from './request-ids.js';
import { handshakeOf, storeHandshake } from './handshake.js';
import { Lists, withLists } from './lists.js';
import { outcomeUnknown, wasCancelled } from './refusal.js';
import type { HttpRequest } from './request.js';
import {
  isInitialized,
  isRequest,
  type HttpTransport,
  type McpServerLike,
  type Message,
  type SendOptions,
  type TransportClass,
} from './sdk.js';

/** What all sessions of one `durable` share. */
export interface ServerFactory {
  createServer: (session: Session) => McpServerLike | Promise<McpServerLike>;
  transport: TransportClass;
  enableJsonResponse: boolean;
  app: Promise<App>;
  retryMs: number;
  warn: (line: string) => void;
}

/** A request that the client has cancelled: the server does not answer it. */
interface Cancelled {
  name: Id;
  id: Id;
  post: Post | undefined;
}

/** A server, its transport, and the POSTs that they work on. */
export class ServedSession {
  /** On behalf of the caller that used it last. */
  session: Session;
  readonly transport: HttpTransport;
  usedAt = performance.now();
  /** Whether the server was closed, by whomever. */
  isClosed = false;
  /** Whether the server got `notifications/initialized`. */
  isInitialized = false;
  /** What the client knows of the server's lists. */
  readonly lists = new Lists();
  readonly #factory: ServerFactory;
  readonly #answersInJson: boolean;
  readonly #ids = new RequestIds();
  /** By the names of their requests. */
  readonly #posts = new Map<Id, Post>();
  readonly #standalone: Appender;
  /** The transport's own. */
  readonly #sendBySdk: HttpTransport['send'];
  #server: McpServerLike | undefined;
  /** The parameters of an `initialize` that is not answered. */
  #initialize: { id: string | number; params: unknown } | undefined;
  #failing = false;
  /** The client is told of changed lists, and that is recorded. */
  #announced: Promise<unknown> | undefined;

  private constructor(factory: ServerFactory, session: Session, { answersInJson }: App) {
    this.#factory = factory;
    this.session = session;
    this.#answersInJson = answersInJson;
    this.#standalone = new Appender(() => this.session.standalone);
    const { retryMs: retryInterval, enableJsonResponse } = factory;
    this.transport = new factory.transport({
      sessionIdGenerator: () => session.id,
      eventStore: this.#eventStore(),
      enableJsonResponse,
      retryInterval,
    });
    this.#sendBySdk = this.transport.send.bind(this.transport);
    this.transport.send = (message: Message, options?: SendOptions) => this.#send(message, options);
    if (!answersInJson) return;
    const close = this.transport.close.bind(this.transport);
    this.transport.close = async () => {
      const open = [...this.#posts.keys()];
      await Promise.all(open.map((name) => this.#endJson(name, outcomeUnknown(this.#ids.idOf(name)))));
      await close();
    };
  }

  /** Makes a server for a session, which gets its `initialize` next. */
  static async make(factory: ServerFactory, session: Session): Promise<ServedSession> {
    const served = new ServedSession(factory, session, await factory.app);
    served.#server = await factory.createServer(session);
    await served.#server.connect(served.transport);
    const { onclose } = served.transport;
    served.transport.onclose = () => {
      served.#onClosed();
      onclose?.();
    };
    servedSessions.set(session.id, served);
    return served;
  }

  /** Whether the server works on something. */
  get isBusy(): boolean {
    return this.#posts.size > 0;
  }

  /** Opens the stream of a POST, and gives it to the SDK. Rejects with a `SessiondError`. */
  async handle(
    session: Session,
    messages: Message[],
    body: unknown,
    request: HttpRequest,
    response: ServerResponse,
  ): Promise<void> {
    const [first, ...rest] = messages;
    if (first && rest.length === 0 && isInitialized(first)) {
      // A client that was restarted goes through the handshake again, of which its server needs no second half.
      if (this.isInitialized) return void response.writeHead(202).end();
      this.isInitialized = true;
    }
    const requests = messages.filter(isRequest);
    const post = requests.length > 0 ? await Post.open(session, requests) : undefined;
    this.session = session;
    this.usedAt = performance.now();
    const cancelled: Cancelled[] = [];
    const named = messages.map((message) => this.#forServer(message, post, cancelled));
    await context.run({ session, ...(post ? { post } : {}) }, () =>
      this.transport.handleRequest(request, response, bodyOf(body, named)),
    );
    if (post && response.statusCode >= 400) this.#onRefused(post);
    if (first && isInitialized(first) && response.statusCode >= 400) this.isInitialized = false;
    for (const { name, id, post } of cancelled) {
      post?.answered(id);
      // The client does not look at the answer (MCP 2025-11-25, Cancellation).
      if (this.#answersInJson) await this.#endJson(name, wasCancelled(id));
      else this.transport.closeSSEStream?.(name);
    }
  }

  /** A message of the client's, by the names that the server knows. */
  #forServer(message: Message, post: Post | undefined, cancelled: Cancelled[]): Message {
    if (post && isRequest(message)) {
      const named = this.#ids.take(message);
      this.#posts.set(named.id!, post);
      this.lists.asked(named.id!, message);
      if (message.method === 'initialize') this.#initialize = { id: named.id!, params: message.params };
      return named;
    }
    const requestId = this.#ids.cancelledBy(message);
    if (requestId === undefined) return this.#ids.cancellingNone(message);
    // From now on: the client may send another request with this id before the SDK has the message.
    cancelled.push({
      name: requestId,
      id: this.#ids.idOf(requestId),
      post: this.#posts.get(requestId),
    });
    this.#posts.delete(requestId);
    this.#ids.cancel(requestId);
    return { ...message, params: { ...message.params, requestId } };
  }

  /** The SDK has refused a POST: the server gets none of its requests. */
  #onRefused(refused: Post): void {
    for (const [name, post] of this.#posts) if (post === refused) this.#forget(name);
    refused.close();
  }

  #forget(name: Id): void {
    this.#posts.delete(name);
    this.#ids.done(name);
  }

  /** Answers a request, of this name, that the server does not answer: nothing else ends a response in JSON. */
  async #endJson(name: Id, forClient: Message): Promise<void> {
    await this.#sendBySdk(asSent({ ...forClient, id: name }, forClient)).catch(() => undefined);
  }

  /** Ends the server. The session stays. */
  async close(): Promise<void> {
    if (servedSessions.get(this.session.id) === this) servedSessions.delete(this.session.id);
    await this.#server?.close().catch(() => undefined);
  }

  /** What the server has not answered it never will. */
  #onClosed(): void {
    this.isClosed = true;
    for (const [name, post] of this.#posts)
      void this.#store(() => post.store(outcomeUnknown(this.#ids.idOf(name))));
    this.#posts.clear();
  }

  /**
   * In place of the transport's own `send`, some of which drop what nobody reads at the moment. Nothing is
   * lost here.
   */
  async #send(sent: Message, options: SendOptions | undefined): Promise<void> {
    const send = this.#sendBySdk;
    const message = sent.method === undefined && this.#initialize?.id === sent.id ? withLists(sent) : sent;
    const here = context.getStore();
    if (here?.isReplay) {
      if (message.method === undefined) here.onReplayed?.(message);
      return send(message, options);
    }
    const isAnswer = message.method === undefined;
    const forClient = this.#ids.forClient(message);
    const id = isAnswer ? message.id : options?.relatedRequestId;
    if (id === undefined) {
      await this.#keep(forClient);
      return;
    }
    const post = this.#posts.get(id);
    // A message for a cancelled request is dropped.
    if (this.#ids.isCancelled(id)) return;
    // The SDK knows no such request either, and says so.
    if (!post) return send(message, options);
    this.#announce((change) =>
      this.#answersInJson
        ? this.#keep(change)
        : this.#write(change, post, () => send(change, { relatedRequestId: id })),
    );
    // It has no place beside the answer: the SDK drops it.
    if (!isAnswer && this.#answersInJson) return send(message, options);
    try {
      if (isAnswer) {
        await this.#announced;
        await this.#onAnswer(message);
      }
      await this.#write(forClient, post, () => send(asSent(message, forClient), options));
    } finally {
      // Not before: the SDK knows the request by its name while this waits for the daemon, and deletes what it
      // knows by that in the microtasks that follow.
      if (isAnswer) setImmediate(() => this.#ids.done(message.id!));
    }
  }

  /** Keeps a message on the standalone stream, for a GET. */
  #keep(forClient: Message): Promise<string | undefined> {
    return this.#store(() => this.#standalone.append(jsonText(forClient)).then(({ id }) => id));
  }

  /**
   * Tells the client, by `tell`, of lists that have changed since another process has served the session: on the stream of the
   * request that comes next, before everything else there, or on the standalone stream where that is answered in JSON.
   */
  #announce(tell: (change: Message) => Promise<unknown>): void {
    const changes = this.lists.changes();
    if (changes.length === 0) return;
    this.#announced = Promise.allSettled(changes.map(tell))
      .then(() => this.#store(() => this.lists.store(this.session).then(() => '')))
      .finally(() => (this.#announced = undefined));
  }

  /** Keeps a message, and has the SDK send it on a POST. */
  async #write(forClient: Message, post: Post, send: () => Promise<void>): Promise<void> {
    const here = context.getStore();
    const sentAs = (await this.#store(() => post.store(forClient))) ?? '';
    try {
      await context.run({ session: this.session, ...here, post, sentAs }, send);
    } catch (error) {
      // The client is gone. It gets the message when it reconnects.
      if (!sentAs) throw error;
    }
  }

  async #onAnswer(message: Message): Promise<void> {
    this.usedAt = performance.now();
    this.#posts.delete(message.id!);
    this.#ids.answered(message.id!);
    // Recorded before the client knows the list.
    if (this.lists.answered(message.id!, message.result))
      await this.#store(() => this.lists.store(this.session).then(() => ''));
    const asked = this.#initialize;
    if (asked?.id !== message.id || message.result === undefined) return;
    this.#initialize = undefined;
    this.lists.declare(message.result);
    // Stored before the client knows its session.
    await this.#store(() =>
      storeHandshake(this.session, handshakeOf(asked?.params, message.result)).then(() => ''),
    );
  }

  /**
   * The store that the transport gets. It asks it for the ids of what it writes to a POST, and for nothing
   * else. What it writes by itself is the event that primes the client.
   */
  #eventStore(): EventStore {
    return {
      storeEvent: async (_, message) => {
        const { post, sentAs, isReplay } = context.getStore() ?? {};
        if (!post || isReplay) return '';
        return sentAs ?? (await this.#store(() => post.store(message))) ?? '';
      },
      getStreamIdForEventId: async () => undefined,
      replayEventsAfter: async () => '',
    };
  }

  /**
   * Never rejects, since the SDK would not send the message then: undefined where it can't be kept, which is
   * logged once.
   */
  async #store(store: () => Promise<string>): Promise<string | undefined> {
    try {
      const id = await store();
      this.#failing = false;
      return id;
    } catch (error) {
      // A session that has ended needs no messages.
      if (isCode(error, 'unknown_session', 'session_terminated')) return undefined;
      if (!this.#failing)
        this.#factory.warn(`messages of session ${redacted(this.session.id)} are not kept: ${String(error)}`);
      this.#failing = true;
      return undefined;
    }
  }
}

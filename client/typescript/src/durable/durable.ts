// What becomes of each request: GETs are answered here, POSTs by the SDK.
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Causes } from '../causes.js';
import { isCode } from '../errors.js';
import { warner } from '../options.js';
import type { Session } from '../session.js';
import { Sessions } from '../sessions.js';
import type { Caller, SessionView } from '../types.js';
import { appOf } from './app.js';
import { serveOverHttp } from './context.js';
import { Cookie, useCookieId } from './cookie.js';
import { begin, Reader } from './get.js';
import { ServedSession, type ServerFactory } from './served-session.js';
import type { DurableOptions } from './options.js';
import { isSameClient, storedHandshake, type Handshake } from './handshake.js';
import { Refusal } from './refusal.js';
import {
  bearer,
  checkVersion,
  dropHeader,
  header,
  messagesOf,
  verified,
  type HttpRequest,
} from './request.js';
import { restore } from './restore.js';
import { answerWithoutSession } from './stateless.js';
import { isInitialize, isRequest, type Message } from './sdk.js';

/** After what time a client comes back, in ms. */
const RETRY_MS = 5_000;
/**
 * After how long without a request a server is closed, in ms. Its session stays, and gets another one when it
 * is used.
 */
const IDLE_MS = 30 * 60_000;
/** How often servers are checked for that, in ms. */
const IDLE_CHECK_MS = 60_000;
/** How long the daemon is waited for, in ms, before a request is refused with 503. */
const TIMEOUT_MS = 5_000;
/** The header that names a session that an `initialize` would go on with, if it is there. */
const RECONNECT = 'x-mcp-reconnect-session';
const NOTHING_KEPT =
  'the app has no sessions, since its transport sets no `sessionIdGenerator`. Its requests go to it as they are, and nothing is kept. ' +
  "For sessions, give `durable` the SDK's own transport";

/** The sessions of one service that this process serves. */
export class Durable {
  readonly #options: DurableOptions;
  readonly #sessions: Sessions;
  readonly #factory: ServerFactory;
  readonly #cookie: Cookie | undefined;
  readonly #served = new Map<string, Promise<ServedSession>>();
  readonly #readers = new Map<string, Reader>();
  readonly #timer: NodeJS.Timeout;
  readonly #causes: Causes;
  #hasTold = false;

  constructor(createServer: ServerFactory['createServer'], options: DurableOptions) {
    serveOverHttp();
    this.#options = options;
    this.#sessions = Sessions.ofService(options.service, { timeoutMs: TIMEOUT_MS, ...options });
    this.#cookie = options.cookie === undefined ? undefined : new Cookie(options.cookie);
    const { transport, enableJsonResponse = false, retryMs = RETRY_MS, log } = options;
    const app = appOf(transport, enableJsonResponse);
    this.#factory = { createServer, transport, enableJsonResponse, app, retryMs, warn: warner(log) };
    this.#causes = new Causes(this.#factory.warn);
    void app.then(async ({ hasSessions }) => {
      if (!hasSessions) this.#factory.warn(NOTHING_KEPT);
      // Who starts a server without a daemon reads it at once.
      else await this.#sessions.reach().catch((error: unknown) => this.#refusal(error));
    });
    this.#timer = setInterval(() => void this.#closeIdle(), IDLE_CHECK_MS);
    this.#timer.unref();
  }

  async answer(request: HttpRequest, response: ServerResponse): Promise<void> {
    try {
      const { hasSessions } = await this.#factory.app;
      if (!hasSessions) return await answerWithoutSession(this.#factory, request, response);
      switch (request.method) {
        case 'POST':
          return await this.#post(request, response);
        case 'GET':
          return await this.#get(request, response);
        case 'DELETE':
          return await this.#delete(request, response);
        default:
          throw Refusal.notAllowed();
      }
    } catch (error) {
      this.#refusal(error).answer(response);
    }
  }

  /** The refusal that an error comes to. What it hides from the client is logged. */
  #refusal(error: unknown): Refusal {
    const refusal = Refusal.of(error);
    const isHidden = refusal !== error && refusal.message !== (error as Error | undefined)?.message;
    if (refusal.status >= 500 && isHidden) this.#causes.log(`requests get ${refusal.status}`, error);
    return refusal;
  }

  async close(): Promise<void> {
    clearInterval(this.#timer);
    for (const reader of this.#readers.values()) reader.end();
    await Promise.all([...this.#served.keys()].map((id) => this.#closeServer(id)));
    this.#sessions.hangUp();
  }

  /**
   * Opens the session that a cookie names, where the header names none. Returns the refusal for a cookie that
   * names no session of this caller: a browser keeps sending the cookie of a session that has ended, or of a user
   * who has logged out.
   */
  async #openByCookie(request: HttpRequest, response: ServerResponse): Promise<Refusal | undefined> {
    let found: Refusal | undefined;
    if (!this.#cookie || header(request, 'mcp-session-id') !== undefined) return found;
    for (const id of this.#cookie.idsOf(request)) {
      try {
        const caller = this.#caller(request);
        const { session, view } = await this.#open(id, request);
        // What nobody in particular has begun, and anybody may know, is not for a caller that has a name.
        if (caller && !view.bound) throw Refusal.unknownSession();
        // Its `initialize` was never answered.
        if (!(await storedHandshake(session, view))) throw Refusal.unknownSession();
        useCookieId(request, response, id);
        return undefined;
      } catch (error) {
        // A cookie may be anything.
        const refusal = isCode(error, 'invalid_argument') ? Refusal.unknownSession() : Refusal.of(error);
        if (![403, 404].includes(refusal.status)) throw error;
        found = refusal;
      }
    }
    return found;
  }

  async #post(request: HttpRequest, response: ServerResponse): Promise<void> {
    const { body, messages } = await messagesOf(request);
    const initialize = messages.find(isInitialize);
    const wished = initialize && !header(request, 'mcp-session-id') && header(request, RECONNECT);
    const refusal = wished ? undefined : await this.#openByCookie(request, response);
    if (initialize) {
      const id = wished || header(request, 'mcp-session-id');
      // By its own header a client asks for this session, whoever has begun it.
      const isFor = (handshake: Handshake) => Boolean(wished) || isSameClient(handshake, initialize.params);
      if (id && (await this.#repeat(id, initialize, isFor, request, response))) return;
      dropHeader(request, 'mcp-session-id');
      return this.#begin(initialize, request, response, body);
    }
    if (messages.some(({ method }) => method === 'server/discover')) throw Refusal.noDiscover();
    if (refusal) throw refusal;
    const served = await this.#servedSession(this.#id(request), request);
    const session = served.session.onBehalfOf(this.#caller(request));
    try {
      if (!messages.some(isRequest)) await session.touch();
      await served.handle(session, messages, body, request, response);
    } catch (error) {
      // Another process has ended it, or its time.
      if (isCode(error, 'unknown_session', 'session_terminated')) await this.#closeServer(session.id);
      throw error;
    }
  }

  /** The first request of a client. */
  async #begin(
    initialize: Message,
    request: HttpRequest,
    response: ServerResponse,
    body: unknown,
  ): Promise<void> {
    const caller = this.#caller(request);
    const { lifetimes } = this.#options;
    const session = await this.#sessions.create({
      ...(lifetimes ? { lifetimes } : {}),
      ...(caller ? { binding: { caller } } : {}),
    });
    const made = ServedSession.make(this.#factory, session);
    this.#served.set(session.id, made);
    let begun = false;
    this.#cookie?.set(response, session.id);
    try {
      await (await made).handle(session, [initialize], body, request, response);
      begun = response.statusCode < 400;
    } finally {
      // Where the daemon is away by now, the session ends by its lifetimes.
      if (!begun) await this.#end(session).catch(() => this.#closeServer(session.id));
    }
  }

  /**
   * A client that begins again with a session that it has: it gets the answer that it got then. False: that session
   * is gone, or it is another client's or speaks another version, and a new one begins.
   *
   * MCP has 404 for an unknown session (2025-11-25, Session Management). `initialize` alone departs from that: clients
   * send the id of a session that is gone, and would get 404 until they are started again.
   */
  async #repeat(
    id: string,
    { id: asked }: Message,
    isFor: (handshake: Handshake) => boolean,
    request: HttpRequest,
    response: ServerResponse,
  ): Promise<boolean> {
    const handshake = await this.#handshake(id, request).catch((error: unknown) => {
      if (isCode(error, 'invalid_argument') || Refusal.of(error).status === 404) return undefined;
      throw error;
    });
    if (!handshake || !isFor(handshake)) return false;
    const answer = JSON.stringify({ jsonrpc: '2.0', id: asked, result: handshake.result });
    response.writeHead(200, { 'Content-Type': 'application/json', 'Mcp-Session-Id': id }).end(answer);
    return true;
  }

  async #handshake(id: string, request: HttpRequest): Promise<Handshake | undefined> {
    const { session, view } = await this.#open(id, request);
    return storedHandshake(session, view);
  }

  async #get(request: HttpRequest, response: ServerResponse): Promise<void> {
    if (!header(request, 'accept')?.includes('text/event-stream')) throw Refusal.notAcceptable();
    checkVersion(request);
    const id = await this.#named(request, response);
    const { session } = await this.#open(id, request);
    const reading = await begin(session, header(request, 'last-event-id'));
    if (!reading) {
      response.writeHead(204, { 'Mcp-Session-Id': id }).end();
      return;
    }
    const reader = new Reader(session, reading, response);
    const name = `${id} ${reading.stream}`;
    // Each message goes to one reader.
    this.#readers.get(name)?.end();
    this.#readers.set(name, reader);
    try {
      await reader.read(header(request, 'mcp-protocol-version'), this.#factory.retryMs);
    } finally {
      if (this.#readers.get(name) === reader) this.#readers.delete(name);
    }
  }

  async #delete(request: HttpRequest, response: ServerResponse): Promise<void> {
    checkVersion(request);
    const id = await this.#named(request, response);
    await this.#end((await this.#open(id, request)).session);
    response.writeHead(200).end();
  }

  /** The server of a session: that of this process, or a new one. */
  async #servedSession(id: string, request: HttpRequest): Promise<ServedSession> {
    const known = await this.#served.get(id);
    if (known && !known.isClosed) return known;
    if (known) this.#served.delete(id);
    return this.#served.get(id) ?? this.#restore(id, request);
  }

  #restore(id: string, request: HttpRequest): Promise<ServedSession> {
    const restored = this.#restored(id, request);
    this.#served.set(id, restored);
    restored.catch(() => this.#served.delete(id));
    return restored;
  }

  async #restored(id: string, request: HttpRequest): Promise<ServedSession> {
    const { session, view } = await this.#open(id, request);
    const handshake = await storedHandshake(session, view);
    // Its `initialize` was never answered.
    if (!handshake) throw Refusal.unknownSession();
    return restore(this.#factory, session, handshake, request);
  }

  async #end(session: Session): Promise<void> {
    await session.terminate();
    await this.#closeServer(session.id);
    for (const [name, reader] of this.#readers) if (name.startsWith(`${session.id} `)) reader.end();
  }

  async #closeServer(id: string): Promise<void> {
    const served = this.#served.get(id);
    this.#served.delete(id);
    await (await served?.catch(() => undefined))?.close();
  }

  /**
   * Touches the sessions whose servers are at work, and closes the servers of sessions that were not used for
   * long.
   */
  async #closeIdle(): Promise<void> {
    const idle = this.#options.idleMs ?? IDLE_MS;
    for (const [id, made] of [...this.#served]) {
      const served = await made.catch(() => undefined);
      if (served?.isBusy) await served.session.touch().catch(() => undefined);
      else if (served && performance.now() - served.usedAt > idle) await this.#closeServer(id);
    }
  }

  /** The session that a request names, also by a cookie. */
  async #named(request: HttpRequest, response: ServerResponse): Promise<string> {
    const refusal = await this.#openByCookie(request, response);
    if (refusal) throw refusal;
    return this.#id(request);
  }

  #id(request: IncomingMessage): string {
    const id = header(request, 'mcp-session-id');
    if (!id) throw Refusal.noSession();
    return id;
  }

  #caller(request: IncomingMessage): Caller | undefined {
    return this.#options.caller ? this.#options.caller(request) : (verified(request) ?? bearer(request));
  }

  /** A session, on behalf of the request's caller. Rejects with a `SessiondError`. */
  async #open(id: string, request: IncomingMessage): Promise<{ session: Session; view: SessionView }> {
    const caller = this.#caller(request);
    try {
      return await this.#sessions.onBehalfOf(caller).openWithView(id);
    } catch (error) {
      if (this.#options.caller || !isCode(error, 'binding_mismatch')) throw error;
      // It was begun before its user was known, or by a version that knew no users.
      if (caller?.kind === 'identity')
        return await this.#sessions.onBehalfOf(bearer(request)).openWithView(id).catch(this.#tellOfCaller);
      return this.#tellOfCaller(error);
    }
  }

  /** Says once what to do where one user has several credentials. */
  #tellOfCaller = (error: unknown): never => {
    if (!this.#hasTold && isCode(error, 'binding_mismatch'))
      this.#factory.warn(
        'a request names a session that was begun with another credential, and gets 404. If that is the same user, tell by the ' +
          'option `caller` of `durable` who that is',
      );
    this.#hasTold ||= isCode(error, 'binding_mismatch');
    throw error;
  };
}

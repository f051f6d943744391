// What an author may say to `durable`.
import type { IncomingMessage } from 'node:http';
import type { Options } from '../options.js';
import type { Caller, Lifetimes } from '../types.js';
import type { SessionCookie } from './cookie.js';
import type { TransportClass } from './sdk.js';

/** How `durable` works. */
export interface DurableOptions extends Options {
  /**
   * The service whose sessions they are: every process that says this name serves them. 1 to 128 visible
   * ASCII characters.
   */
  service: string;
  /**
   * `StreamableHTTPServerTransport` of the SDK's v1, `NodeStreamableHTTPServerTransport` of v2. A class of yours that sets no
   * `sessionIdGenerator` has no sessions: it gets its requests as they are, `createServer` gets no session, and nothing is kept.
   */
  transport: TransportClass;
  /**
   * Whether a request is answered by one JSON body, as by the SDK's option of this name: false, by a stream of events. What a
   * handler sends before its answer is dropped then, and a call whose connection breaks can't be resumed.
   */
  enableJsonResponse?: boolean;
  /**
   * Who sends a request: a session takes part in requests of the caller that began it, and of nobody else. Any
   * other gets 404. By default that is the user of the token that the SDK's own verifier has left in `req.auth`
   * (`extra.sub`, with `extra.iss`), so a refreshed token keeps its session; without one, whoever has the same
   * bearer token; without a token, whoever knows the session's id. Check tokens before.
   */
  caller?: (request: IncomingMessage) => Caller | undefined;
  /**
   * Names sessions in a cookie of this name, too, and reads it where the header `Mcp-Session-Id` is missing: for
   * pages. By default there is none.
   */
  cookie?: string | SessionCookie;
  /** How long a session lives. By default as the daemon's settings have it. */
  lifetimes?: Lifetimes;
  /** After what time a client comes back whose connection has ended, in ms: 5,000. */
  retryMs?: number;
  /**
   * After how long without a request this process lets a session's server go, in ms: 30 minutes. The session
   * stays.
   */
  idleMs?: number;
}

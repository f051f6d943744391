// Which session a piece of code works for.
import { AsyncLocalStorage } from 'node:async_hooks';
import { SessiondError } from '../errors.js';
import { instanceSession } from '../instance.js';
import type { Session } from '../session.js';
import type { Post } from './post.js';
import type { Message } from './sdk.js';

/** What is known of the request that is being carried out. */
export interface Context {
  /** The session, on behalf of the request's caller. */
  session: Session;
  /** The request's stream. Absent where it has none. */
  post?: Post;
  /** The event id of the message that is being sent, which is kept: empty where it could not be. */
  sentAs?: string;
  /** A handshake is repeated to a new server, or it is asked for its lists: what it answers is not for the client. */
  isReplay?: boolean;
  /** Gets the answer to a request that is not the client's. */
  onReplayed?: (answer: Message) => void;
}

/** The context of the code that runs. */
export const context = new AsyncLocalStorage<Context>();

/** Sessions that this process serves, by their ids. */
export const servedSessions = new Map<string, { session: Session }>();

/** Whether this process serves sessions over HTTP: then no code works for the session of the process itself. */
const serving = { overHttp: false };

/** This process serves sessions over HTTP from now on. */
export function serveOverHttp(): void {
  serving.overHttp = true;
}

/**
 * The session that a handler of a server works for, with its state and streams. `extra`: what the SDK gives
 * to the handler; it need not be given, unless the handler has lost its asynchronous context. In a server on stdio it is the
 * session of the instance, once `load` or `session` of `Sessiond` has claimed it. Throws `no_session` elsewhere.
 *
 * ```ts
 * server.tool('visit', async (extra) => {
 *   const visits = await session(extra).get<number>('visits') ?? 0;
 *   await session(extra).set('visits', visits + 1);
 *   return { content: [{ type: 'text', text: String(visits + 1) }] };
 * });
 * ```
 */
export function session(extra?: { sessionId?: string | undefined }): Session {
  const here = context.getStore()?.session;
  const id = extra?.sessionId;
  if (here && (id === undefined || here.id === id)) return here;
  // A request over HTTP is not for the session of the process, also where no `durable` is around the server.
  const isOnStdio =
    extra !== undefined && !('requestInfo' in extra && extra.requestInfo) && !('http' in extra && extra.http);
  const own = serving.overHttp || !isOnStdio ? undefined : instanceSession();
  const found = id === undefined ? own : servedSessions.get(id)?.session;
  if (!found)
    throw new SessiondError(
      'no_session',
      'there is no session here: call `session(extra)` in a handler of a durable server, or on stdio after `await sessiond.session()`',
    );
  return found;
}

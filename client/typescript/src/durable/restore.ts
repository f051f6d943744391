// A session that another process has served: its recorded handshake is repeated to a new server.
import type { Session } from '../session.js';
import { context } from './context.js';
import { exchange, headersFor, ID, initializeOf } from './exchange.js';
import { ServedSession, type ServerFactory } from './served-session.js';
import type { Handshake } from './handshake.js';
import type { ListPage } from './lists.js';
import { header, type HttpRequest } from './request.js';
import type { Message } from './sdk.js';

/** How long the request that restores a session waits for the server's lists, in ms. Later ones hear of the changes then. */
const LISTS_MS = 2_000;

/**
 * Makes a server that is initialised as the former one was, and compares its lists with those that the client knows.
 * `request`: the one that needs it, by whose host and user the server is asked.
 */
export async function restore(
  factory: ServerFactory,
  session: Session,
  { initialize, result, version }: Handshake,
  request: HttpRequest,
): Promise<ServedSession> {
  const served = await ServedSession.make(factory, session);
  const headers = headersFor(header(request, 'host'));
  const again = initializeOf(initialize);
  const initialized: Message = { jsonrpc: '2.0', method: 'notifications/initialized' };
  const named = { ...headers, 'mcp-session-id': session.id, 'mcp-protocol-version': version };
  try {
    await context.run({ session, isReplay: true }, () => exchange(served.transport, headers, again));
    // What the server does now that it is initialised is meant for the client.
    await context.run({ session }, () => exchange(served.transport, named, initialized));
    served.isInitialized = true;
  } catch (error) {
    await served.close();
    throw error;
  }
  const page: ListPage = async (method, params) => {
    let answer: Message | undefined;
    const onReplayed = (said: Message) => void (answer = said);
    await context.run({ session, isReplay: true, onReplayed }, () =>
      exchange(served.transport, named, { jsonrpc: '2.0', id: ID, method, params }, request),
    );
    return answer?.result as Record<string, unknown> | undefined;
  };
  served.lists.declare(result);
  // A server that can't list, or a daemon that is away, is no reason not to serve.
  const compared = served.lists.compare(session, page).catch(() => undefined);
  let timer: NodeJS.Timeout | undefined;
  await Promise.race([compared, new Promise((resolve) => (timer = setTimeout(resolve, LISTS_MS)))]);
  clearTimeout(timer);
  return served;
}

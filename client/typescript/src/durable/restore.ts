// A session that another process has served: its recorded handshake is repeated to a new server.
import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import { Writable } from 'node:stream';
import type { Session } from '../session.js';
import { context } from './context.js';
import { ServedSession, type ServerFactory } from './served-session.js';
import type { Handshake } from './handshake.js';
import type { HttpTransport, Message } from './sdk.js';

/** The id of the repeated `initialize`, which no client sees. */
const ID = 'mcp-sessiond';

/**
 * Makes a server that is initialised as the former one was. `host`: the header of the request that needs it.
 */
export async function restore(
  factory: ServerFactory,
  session: Session,
  { initialize, version }: Handshake,
  host: string | undefined,
): Promise<ServedSession> {
  const served = await ServedSession.make(factory, session);
  const headers = {
    host: host ?? 'localhost',
    accept: 'application/json, text/event-stream',
    'content-type': 'application/json',
  };
  const again: Message = {
    jsonrpc: '2.0',
    id: ID,
    method: 'initialize',
    params: initialize as Record<string, unknown>,
  };
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
  return served;
}

/**
 * Gives a message to a transport as a POST, and waits until that is answered. Rejects where it is refused.
 */
async function exchange(
  transport: HttpTransport,
  headers: Record<string, string>,
  body: Message,
): Promise<void> {
  const request = new IncomingMessage(new Socket());
  const rawHeaders = Object.entries(headers).flat();
  Object.assign(request, {
    method: 'POST',
    url: '/mcp',
    httpVersion: '1.1',
    headers,
    rawHeaders,
    complete: true,
  });
  request.push(null);
  const response = new ServerResponse(request);
  const nobody = new Writable({ write: (_bytes, _encoding, done) => done() });
  response.assignSocket(nobody as Socket);
  const answered = new Promise<void>((resolve) => response.once('finish', resolve).once('close', resolve));
  await transport.handleRequest(request, response, body);
  await answered;
  if (response.statusCode >= 400)
    throw new Error(`the SDK has refused the recorded handshake with HTTP ${response.statusCode}`);
}

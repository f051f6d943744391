// An app without sessions: it gets its requests as they are, and nothing is kept.
import { randomUUID } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import { exchange, headersFor, initializeOf } from './exchange.js';
import type { HttpRequest } from './request.js';
import type { TransportClass } from './sdk.js';
import type { ServerFactory } from './served-session.js';

/** What any transport takes as the beginning of a session. */
const INITIALIZE = {
  protocolVersion: '2025-06-18',
  capabilities: {},
  clientInfo: { name: 'mcp-sessiond', version: '1' },
};

/** Whether an app has sessions: its transport has an id as soon as a client begins one. */
export function hasSessions(transport: TransportClass): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const asked = new transport({ sessionIdGenerator: randomUUID });
    asked.onmessage = () => {
      resolve(asked.sessionId !== undefined);
      void asked.close();
    };
    // What answers without having a server asked is not the SDK's own: it is served as an app with sessions.
    asked
      .start()
      .then(() => exchange(asked, headersFor(), initializeOf(INITIALIZE)))
      .then(() => resolve(true), reject);
  });
}

/** Answers a request by a server of its own, as an app does that has no sessions. */
export async function answerWithoutSession(
  { createServer, transport }: ServerFactory,
  request: HttpRequest,
  response: ServerResponse,
): Promise<void> {
  // There is no session to give.
  const server = await createServer(undefined as never);
  const own = new transport({ sessionIdGenerator: undefined });
  response.once('close', () => void server.close());
  await server.connect(own);
  await own.handleRequest(request, response, request.body);
}

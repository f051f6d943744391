// An app without sessions: it gets its requests as they are, and nothing is kept.
import type { ServerResponse } from 'node:http';
import type { HttpRequest } from './request.js';
import type { ServerFactory } from './served-session.js';

/** Answers a request by a server of its own, as an app does that has no sessions. */
export async function answerWithoutSession(
  { createServer, transport, enableJsonResponse }: ServerFactory,
  request: HttpRequest,
  response: ServerResponse,
): Promise<void> {
  // There is no session to give.
  const server = await createServer(undefined as never);
  const own = new transport({ sessionIdGenerator: undefined, enableJsonResponse });
  response.once('close', () => void server.close());
  await server.connect(own);
  await own.handleRequest(request, response, request.body);
}

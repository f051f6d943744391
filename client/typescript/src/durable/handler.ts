// Sessions of an HTTP server on the official SDK that survive the server: what an author calls.
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Session } from '../session.js';
import { Durable } from './durable.js';
import { sendByFastify, sendByHono, written, type FastifyReply, type HonoContext } from './framework.js';
import type { HttpRequest } from './request.js';
import type { DurableOptions } from './options.js';
import type { McpServerLike } from './sdk.js';

/**
 * Answers requests of MCP. For Express and Node's `http` it is a handler; for others it has one of theirs.
 */
export interface DurableHandler {
  (request: IncomingMessage, response: ServerResponse, next?: unknown): Promise<void>;
  /** A handler of Fastify: `fastify.all('/mcp', handler.fastify)`. */
  fastify(request: { raw: IncomingMessage; body?: unknown }, reply: FastifyReply): Promise<unknown>;
  /** A handler of Hono on `@hono/node-server`: `app.all('/mcp', handler.hono)`. */
  hono(context: HonoContext): Promise<Response>;
  /** Ends the servers of this process. Sessions stay. */
  close(): Promise<void>;
}

/**
 * Sessions that survive the process that serves them: one line for a server on the official TypeScript SDK,
 * v1 from 1.13 on or v2. A client comes back to the next process with the same session, without `initialize`;
 * what was sent to it is replayed once; and a call that was under way is answered, "the outcome is unknown".
 *
 * ```ts
 * app.all('/mcp', durable(createServer, { service: 'shop', transport: StreamableHTTPServerTransport }));
 * ```
 *
 * `createServer` makes a server for each session, as for the SDK's own transport. The handler never rejects:
 * while the daemon is away, requests get 503 with `Retry-After`.
 */
export function durable(
  createServer: (session: Session) => McpServerLike | Promise<McpServerLike>,
  options: DurableOptions,
): DurableHandler {
  const service = new Durable(createServer, options);
  const handle = (request: IncomingMessage, response: ServerResponse) => service.answer(request, response);
  return Object.assign(handle, {
    async fastify({ raw, body }: { raw: HttpRequest; body?: unknown }, reply: FastifyReply) {
      if (body !== undefined && body !== null) raw.body = body;
      sendByFastify(await written(raw, (response) => handle(raw, response)), reply);
      return reply;
    },
    async hono(context: HonoContext) {
      const { incoming } = context.env as { incoming: IncomingMessage };
      return sendByHono(await written(incoming, (response) => handle(incoming, response)), context);
    },
    close: () => service.close(),
  });
}

// Compiled only (`tsc --strict`): what `durable` and the event store take of each SDK, by their own types.
import {
  createMcpHandler,
  createRequestStateCodec,
  McpServer,
  Server,
  type CallToolResult,
  type ServerContext,
  type ServerEvent,
} from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { NodeStreamableHTTPServerTransport, toNodeHandler } from '@modelcontextprotocol/node';
import { Hono } from 'hono';
import fastify from 'fastify';
import http from 'node:http';
import { McpServer as Mcp13 } from 'sdk-1.13/server/mcp.js';
import {
  StreamableHTTPServerTransport as Transport13,
  type EventStore as EventStore13,
} from 'sdk-1.13/server/streamableHttp.js';
import { McpServer as Mcp32 } from 'sdk-1.32/server/mcp.js';
import {
  StreamableHTTPServerTransport as Transport32,
  type EventStore as EventStore32,
} from 'sdk-1.32/server/streamableHttp.js';
import {
  credential,
  durable,
  eventBus,
  requestStateCodec,
  session,
  SessionEventStore,
  Sessions,
  SessiondError,
  taskExtension,
  type ErrorCode,
} from '../../dist/index.js';

const info = { name: 'types', version: '1.0.0' };
const of = { service: 'types' };
const one = durable(() => new Mcp13(info), { ...of, transport: Transport13 });
const two = durable(async () => new Mcp32(info), { ...of, transport: Transport32, enableJsonResponse: true });
const three = durable(() => new Server(info), { ...of, transport: NodeStreamableHTTPServerTransport });
createMcpHandler(() => new McpServer(info), { bus: eventBus<ServerEvent>(of) });
http.createServer(one);
fastify().all('/mcp', two.fastify);
new Hono().all('/mcp', three.hono);

new Mcp32(info).registerTool('t', { description: '' }, async (extra) => ({
  content: [{ type: 'text', text: String(await session(extra).get<number>('visits')) }],
}));

export async function stores(): Promise<[EventStore13, EventStore32]> {
  const kept = await Sessions.ofService('types').create();
  return [new SessionEventStore(kept), new SessionEventStore(kept)];
}

export const code = (error: SessiondError): ErrorCode => error.code;

const tasks = taskExtension({
  ...of,
  caller: ({ authInfo, req }) => credential(authInfo?.clientId ?? req?.headers.get('x-key') ?? ''),
});
const state = requestStateCodec<{ step: number }>(createRequestStateCodec, {
  ...of,
  bind: (context: ServerContext) => context.http?.authInfo?.clientId ?? '',
});
const make = () => {
  const server = new McpServer(info, { requestState: { verify: state.verify } });
  server.registerTool('report', { description: '' }, (context) =>
    tasks.run(context, async (work): Promise<CallToolResult> => {
      const { content } = await work.ask({ method: 'elicitation/create', params: {} });
      await work.update({ message: await state.mint({ step: 1 }, context) });
      return { content: [{ type: 'text', text: String(content) }] };
    }),
  );
  return tasks.attach(server);
};
tasks.attach(new Server(info));
http.createServer(toNodeHandler(tasks.listening(createMcpHandler(make))));
serveStdio(make);

// Compiled only (`tsc --strict`): what `durable` and the event store take of each SDK, by their own types.
import { createMcpHandler, McpServer, Server, type ServerEvent } from '@modelcontextprotocol/server';
import { NodeStreamableHTTPServerTransport } from '@modelcontextprotocol/node';
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
  durable,
  eventBus,
  session,
  SessionEventStore,
  Sessions,
  SessiondError,
  type ErrorCode,
} from '../../dist/index.js';

const info = { name: 'types', version: '1.0.0' };
const of = { service: 'types' };
const one = durable(() => new Mcp13(info), { ...of, transport: Transport13 });
const two = durable(async () => new Mcp32(info), { ...of, transport: Transport32 });
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

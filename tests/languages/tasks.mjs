// A server on the official TypeScript SDK whose tasks every worker of the service knows, in whatever language: tasks.mjs PORT
// Its tools are those of tasks.py.
import { existsSync } from 'node:fs';
import http from 'node:http';
import { createRequire } from 'node:module';
import { setTimeout as pause } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { taskExtension } from '../../client/typescript/dist/index.js';

const { resolve } = createRequire(new URL('../../client/typescript/test/sdks/', import.meta.url));
const load = (name) => import(pathToFileURL(resolve(name)));
const { createMcpHandler, McpServer, ProtocolError } = await load('@modelcontextprotocol/server');
const { toNodeHandler } = await load('@modelcontextprotocol/node');
const { z } = await load('zod');

const tasks = taskExtension({ service: 'languages' });
const text = (said) => ({ content: [{ type: 'text', text: said }] });
const requestedSchema = { type: 'object', properties: { name: { type: 'string' } } };
const question = (message) => ({ method: 'elicitation/create', params: { mode: 'form', message, requestedSchema } });
const begun = { message: 'begun' };

async function opened(gate) {
  while (!existsSync(gate)) await pause(5);
}

async function greet(work) {
  const { content: name } = await work.ask(question('Who are you?'));
  const { content: colour } = await work.ask(question('Which colour?'));
  return text(`Hello, ${name.name} in ${colour.name}!`);
}

function fail() {
  throw new ProtocolError(-32050, 'API rate limit exceeded', { after: 5 });
}

function languages() {
  const server = new McpServer({ name: 'languages', version: '1' });
  server.registerTool('work', { inputSchema: z.object({ gate: z.string() }) }, ({ gate }, context) =>
    tasks.run(context, () => opened(gate).then(() => text('worked')), begun),
  );
  server.registerTool('greet', {}, (context) => tasks.run(context, greet, begun));
  server.registerTool('fail', {}, (context) => tasks.run(context, fail, begun));
  return tasks.attach(server);
}

const handler = toNodeHandler(tasks.listening(createMcpHandler(languages, { legacy: 'reject' })));
http.createServer(handler).listen(Number(process.argv[2]), '127.0.0.1', () => console.log('listening'));

// A server on the official SDK, whose sessions survive it: node server.mjs VERSION PORT [FRAMEWORK [OPTIONS]]
//
// FRAMEWORK is `http` (the default), `raw` (the same, but it leaves bodies alone), `express`, `fastify` or
// `hono`. It prints where it listens, and, unless it is `raw`, the method of each message that a client has
// posted. OPTIONS: more of `durable`, as JSON.
//
//   visit                 counts in the session's state, and answers the count
//   who                   answers what the server knows of its client
//   steps {n, gate, hold} tells n steps as progress, waits for the file `gate`, if one is named, after the
//                         step `hold` (1), and answers n. It prints when it has gone through the gate,
//                         and when it is cancelled
//   notify {n}            sends n log messages that belong to no call, and answers n
//   ask                   asks the client for a sample, and answers its text
//   large {bytes}         answers so many bytes
//   close                 closes the server, before it has answered
//   session               answers the session's id by `extra` alone, without the asynchronous context
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { AsyncResource } from 'node:async_hooks';
import { durable, session } from '../../dist/index.js';
import { serverSdk } from './sdk.mjs';

const [version, port = '0', framework = 'http', options = '{}'] = process.argv.slice(2);
const { Server, Transport, onList, onCall } = await serverSdk(version);
const say = (line) => process.stdout.write(`${line}\n`);
const outside = new AsyncResource('outside');

function opened(gate) {
  return new Promise((resolve) => {
    const watcher = fs.watch(path.dirname(gate), () => look());
    const look = () => {
      if (!fs.existsSync(gate)) return;
      watcher.close();
      resolve();
    };
    look();
  });
}

function createServer() {
  say('created');
  const server = new Server(
    { name: 'durable', version: '1.0.0' },
    { capabilities: { tools: {}, logging: {} } },
  );
  const tools = {
    visit: async (_, { extra }) => {
      const visits = ((await session(extra).get('visits')) ?? 0) + 1;
      await session(extra).set('visits', visits);
      return visits;
    },
    who: () =>
      JSON.stringify({ info: server.getClientVersion(), capabilities: server.getClientCapabilities() }),
    steps: async ({ n, gate, hold = 1 }, { notify, signal, token }) => {
      if (gate) signal.addEventListener('abort', () => say(`aborted ${path.basename(gate)}`));
      for (let progress = 1; progress <= n; progress++) {
        // Not awaited: they come in this order nonetheless.
        const told = notify({
          method: 'notifications/progress',
          params: { progressToken: token, progress, total: n },
        });
        if (progress === hold && gate) await told.then(() => opened(gate));
        if (!gate) await told.then(() => new Promise(setImmediate));
      }
      if (gate) say(`through ${path.basename(gate)}`);
      return n;
    },
    notify: async ({ n }) => {
      for (let data = 1; data <= n; data++) {
        await server.notification({
          method: 'notifications/message',
          params: { level: 'info', logger: 'notify', data },
        });
      }
      return n;
    },
    ask: async () => {
      const messages = [{ role: 'user', content: { type: 'text', text: 'a question' } }];
      const { content } = await server.createMessage({ messages, maxTokens: 10 });
      return content.text;
    },
    large: ({ bytes }) => 'x'.repeat(bytes),
    close: () => server.close(),
    session: (_, { extra }) => outside.runInAsyncScope(() => session(extra).id),
  };
  onList(server, () => ({
    tools: Object.keys(tools).map((name) => ({ name, inputSchema: { type: 'object' } })),
  }));
  onCall(server, async ({ name, arguments: given = {} }, how) => {
    return { content: [{ type: 'text', text: String(await tools[name](given, how)) }] };
  });
  return server;
}

const handler = durable(createServer, {
  service: 'test',
  transport: Transport,
  retryMs: 50,
  start: false,
  ...JSON.parse(options),
});
const posted = (body) => [body].flat().forEach((message) => say(`posted ${message?.method ?? 'answer'}`));
const tell = (address) => say(`listening at http://127.0.0.1:${address.port}/mcp`);

const frameworks = {
  http: () => {
    const server = http.createServer(async (request, response) => {
      if (request.method === 'POST') {
        const parts = [];
        for await (const part of request) parts.push(part);
        const text = Buffer.concat(parts).toString();
        request.body = JSON.parse(text);
        posted(request.body);
      }
      await handler(request, response);
    });
    server.listen(Number(port), '127.0.0.1', () => tell(server.address()));
  },
  raw: () => {
    const server = http.createServer(handler);
    server.listen(Number(port), '127.0.0.1', () => tell(server.address()));
  },
  express: async () => {
    const { default: express } = await import('express');
    const app = express();
    app.use(express.json());
    app.use((request, _, next) => {
      if (request.body) posted(request.body);
      next();
    });
    app.all('/mcp', handler);
    const server = app.listen(Number(port), '127.0.0.1', () => tell(server.address()));
  },
  fastify: async () => {
    const { default: fastify } = await import('fastify');
    const app = fastify();
    app.addHook('preHandler', async ({ body }) => {
      if (body) posted(body);
    });
    app.all('/mcp', handler.fastify);
    await app.listen({ port: Number(port), host: '127.0.0.1' });
    tell(app.server.address());
  },
  hono: async () => {
    const [{ Hono }, { serve }] = [await import('hono'), await import('@hono/node-server')];
    const app = new Hono();
    app.all('/mcp', handler.hono);
    serve({ fetch: app.fetch, port: Number(port), hostname: '127.0.0.1' }, tell);
  },
};
await frameworks[framework]();

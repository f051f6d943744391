// A server of MCP 2026-07-28 with tasks, on the official SDK: node tasks.mjs PORT [LEGACY [PATIENCE [WHO]]], or
// node tasks.mjs stdio
//
// It prints where it listens, and what its tools do. `/changed` says that its tools have changed, `/updated?URI`
// that a resource has, `/close` ends its subscriptions. LEGACY: `reject` (the default), or `stateless`, which
// serves MCP 2025-11-25, too. PATIENCE: how long the daemon is waited for, in ms. WHO: `bearer` (the default), the
// bearer token is the caller, unchecked; or it runs on Express with `express.json()`, which has found out who asks,
// by the header `x-user`: `auth`, as the token of `authInfo`, or `caller`, as the user in it.
//
//   add {a, b}            a task: answers the sum when the file `gate` is there, if one is named, and begins with `message`
//   only {gate}           the same for clients that take tasks; refuses others
//   plain                 no task: answers `plain`
//   greet {times}         a task: asks the client for its name, and greets it
//   sample                a task: asks the client for a sample
//   fail {how}            a task that throws: an error of JSON-RPC (`rpc`), `nothing`, or any other one
//   bad                   a task whose result says `isError`
//   structured {gate}     a task of a tool with an output schema
//   slow                  a task that ends only when it is cancelled
//   impatient             a task that does not wait for what it asks
//   report {steps, gate}  a task that tells how it is going, with other times
//   large {bytes}         a task with so large a result
//   count                 answers by `requestState` how often it was called with what it has answered
//   confirm               asks by `requestState` first, and then answers with a task
import { randomUUID } from 'node:crypto';
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import {
  fromJsonSchema,
  createMcpHandler,
  createRequestStateCodec,
  inputRequired,
  McpServer,
  ProtocolError,
} from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { credential, requestStateCodec, taskExtension } from '../../dist/index.js';

const [port = '0', legacy = 'reject', patience = '10000', who = 'bearer'] = process.argv.slice(2);
const say = (line) => (port === 'stdio' ? process.stderr : process.stdout).write(`${line}\n`);
const text = (text) => ({ content: [{ type: 'text', text: String(text) }] });
const options = { service: 'tasks', start: false, timeoutMs: Number(patience), log: (_, line) => say(line) };
const caller = ({ authInfo }) => authInfo && credential(authInfo.extra.user);
const tasks = taskExtension({ ...options, ...(who === 'caller' ? { caller } : {}) });

const state = requestStateCodec(createRequestStateCodec, options);

/** Waits until a file is there. */
function opened(gate) {
  if (!gate) return Promise.resolve();
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

const name = {
  method: 'elicitation/create',
  params: {
    mode: 'form',
    message: 'Your name?',
    requestedSchema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
  },
};

function createServer() {
  const server = new McpServer(
    { name: 'tasks', version: '1.0.0' },
    { requestState: { verify: state.verify }, capabilities: { resources: { subscribe: true } } },
  );
  const inputSchema = fromJsonSchema({ type: 'object' });
  const tool = (name, call, more = {}) =>
    server.registerTool(name, { description: name, inputSchema, ...more }, call);
  tool('add', ({ a, b, gate, pollMs, ttlMs, message = 'adding' }, context) =>
    tasks.run(
      context,
      async () => {
        say(`working add`);
        await opened(gate);
        return text(a + b);
      },
      { message, ...(pollMs !== undefined && { pollMs }), ...(ttlMs !== undefined && { ttlMs }) },
    ),
  );
  tool('only', ({ gate }, context) =>
    tasks.run(context, () => opened(gate).then(() => text('only')), { required: true }),
  );
  tool('plain', () => text('plain'));
  tool('greet', ({ times = 1 }, context) =>
    tasks.run(context, async (work) => {
      const names = await Promise.all(Array.from({ length: times }, () => work.ask(name)));
      await work.update({ message: 'asked' });
      const again = await work.ask(name);
      return text(`Hello, ${[...names, again].map(({ content }) => content?.name).join(', ')}!`);
    }),
  );
  tool('sample', (_, context) =>
    tasks.run(context, async (work) => {
      const params = {
        messages: [{ role: 'user', content: { type: 'text', text: 'a question' } }],
        maxTokens: 9,
      };
      const { content } = await work.ask({ method: 'sampling/createMessage', params });
      return text(content.text);
    }),
  );
  tool('fail', ({ how }, context) =>
    tasks.run(context, () => {
      if (how === 'nothing') throw undefined;
      if (how === 'rpc') throw new ProtocolError(-32603, 'API rate limit exceeded', { limit: 1 });
      throw new Error('no such city');
    }),
  );
  tool('bad', (_, context) => tasks.run(context, () => ({ ...text('invalid input'), isError: true })));
  tool(
    'structured',
    ({ gate }, context) =>
      tasks.run(context, () => opened(gate).then(() => ({ ...text('7'), structuredContent: { n: 7 } }))),
    {
      outputSchema: fromJsonSchema({
        type: 'object',
        properties: { n: { type: 'number' } },
        required: ['n'],
      }),
    },
  );
  tool('impatient', (_, context) =>
    tasks.run(context, async (work) => {
      void work.ask(name);
      void work.ask({ method: 'sampling/createMessage' });
      await new Promise((resolve) => work.signal.addEventListener('abort', resolve));
    }),
  );
  tool('slow', (_, context) => {
    say('called slow');
    context.mcpReq.signal.addEventListener('abort', () => say('gone'));
    return tasks.run(context, async ({ signal }) => {
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      say(`aborted: ${signal.reason.message}`);
      return text('too late');
    });
  });
  tool('report', ({ gate, pollMs, ttlMs, message = 'half' }, context) =>
    tasks.run(context, async (work) => {
      await work.update({ message, pollMs, ttlMs });
      await opened(gate);
      return text('whole');
    }),
  );
  tool('large', ({ bytes }, context) => tasks.run(context, () => text('x'.repeat(bytes))));
  tool('count', async ({ done }, context) => {
    const count = (context.mcpReq.requestState()?.count ?? 0) + 1;
    return done ? text(count) : inputRequired({ requestState: await state.mint({ count }) });
  });
  tool('confirm', (_, context) => {
    const { answer } = context.mcpReq.inputResponses ?? {};
    if (!answer) return inputRequired({ inputRequests: { answer: name } });
    return tasks.run(context, async (work) =>
      text(`${answer.content.name} and ${(await work.ask(name)).content.name}`),
    );
  });
  return tasks.attach(server);
}

if (port === 'stdio') {
  serveStdio(createServer);
} else {
  const made = createMcpHandler(createServer, { legacy, maxSubscriptions: 8 });
  const handler = tasks.listening(made);
  const node = toNodeHandler(handler);
  const { default: express } = await import('express');
  const app = express();
  app.use(express.json());
  app.post('/mcp', (request, response) => {
    const user = request.get('x-user');
    const extra = { user };
    // The same client at any time; its token is another one each time, unless it is what tells who asks.
    const token = who === 'auth' ? user : randomUUID();
    if (user) request.auth = { token, clientId: 'tester', scopes: [], extra };
    void node(request, response, request.body);
  });
  const server = http.createServer((request, response) => {
    if (who !== 'bearer' && request.url === '/mcp') return app(request, response);
    if (request.url === '/changed') made.notify.toolsChanged();
    if (request.url.startsWith('/updated?'))
      made.notify.resourceUpdated(decodeURIComponent(request.url.split('?')[1]));
    if (request.url === '/close') void handler.close();
    if (request.url === '/mcp') void node(request, response);
    else response.end();
  });
  server.listen(Number(port), '127.0.0.1', () =>
    say(`listening at http://127.0.0.1:${server.address().port}/mcp`),
  );
}

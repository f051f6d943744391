// A server of MCP 2026-07-28 with tasks, on the official SDK: node tasks.mjs PORT [LEGACY [PATIENCE [WHO]]], or
// node tasks.mjs stdio
//
// It prints where it listens, and what its tools do. `/changed` says that its tools have changed, `/updated?URI`
// that a resource has, `/close` ends its subscriptions. LEGACY: `reject` (the default), or `stateless`, which
// serves MCP 2025-11-25, too. PATIENCE: how long the daemon is waited for, in ms. WHO: `bearer` (the default), the
// bearer token is the caller, unchecked; or it runs on Express with `express.json()`, which has found out who asks,
// by the header `x-user`: `auth`, as the token of `authInfo`, or `caller`, as the user in it.
//
// SERVICE names its service (`tasks`). Its tools are those of tests/harness/bin/tasks_server.rs, and these:
//
//   work {gate, message, poll, ttl}   begins with `message`, and takes these times
//   impatient             does not wait for what it asks
//   nothing               throws nothing at all
//   thrown                throws an error that is none of JSON-RPC
//   count                 answers by `requestState` how often it was called with what it has answered
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
const options = {
  service: process.env.SERVICE ?? 'tasks',
  start: false,
  timeoutMs: Number(patience),
  log: (_, line) => say(line),
};
const caller = ({ authInfo }) => authInfo && credential(authInfo.extra.user);
const tasks = taskExtension({ ...options, ...(who === 'caller' ? { caller } : {}) });

const state = requestStateCodec(createRequestStateCodec, options);

/** Waits until a file is there, or nobody waits for the work any more. */
function opened(gate, signal) {
  if (!gate) return Promise.resolve();
  return new Promise((resolve) => {
    const watcher = fs.watch(path.dirname(gate), () => look());
    const end = () => {
      watcher.close();
      resolve();
    };
    const look = () => fs.existsSync(gate) && end();
    signal.addEventListener('abort', end);
    look();
  });
}

/** A question for a name. */
const question = (message) => ({
  method: 'elicitation/create',
  params: {
    mode: 'form',
    message,
    requestedSchema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
  },
});

function createServer() {
  const server = new McpServer(
    { name: 'tasks', version: '1.0.0' },
    { requestState: { verify: state.verify }, capabilities: { resources: { subscribe: true } } },
  );
  const inputSchema = fromJsonSchema({ type: 'object' });
  const tool = (name, call, more = {}) =>
    server.registerTool(name, { description: name, inputSchema, ...more }, call);
  const task = (name, work, options = {}, more = {}) =>
    tool(
      name,
      (given, context) => {
        if (name === 'watched') {
          say('called');
          context.mcpReq.signal.addEventListener('abort', () => say('gone'));
        }
        const { message = 'begun', poll = 50, ttl } = name === 'report' ? {} : given;
        const times = { pollMs: poll, ...(ttl !== undefined && { ttlMs: ttl }) };
        return tasks.run(context, (running) => work(running, given, context), {
          message,
          ...times,
          ...options,
        });
      },
      more,
    );
  const works = async (work, { gate }) => {
    say('working');
    work.signal.addEventListener('abort', () => say(`dropped: ${work.signal.reason.message}`));
    await work.update({ message: 'half of it is done' });
    await opened(gate, work.signal);
    return text('worked');
  };
  const asked = async (work, message) => (await work.ask(question(message)))?.content?.name ?? 'nobody';
  task('work', works);
  task('watched', works);
  task('must', works, { required: true });
  task('short', works, { ttlMs: 300 });
  task('report', async (work, { gate, message = 'half', poll, ttl }) => {
    await work.update({ message, pollMs: poll, ttlMs: ttl });
    await opened(gate, work.signal);
    return text('reported');
  });
  task('greet', async (work) => {
    const name = await asked(work, 'Who are you?');
    await work.update({ message: 'asked' });
    return text(`Hello, ${name} in ${await asked(work, 'Which colour?')}!`);
  });
  task('pair', async (work, { gate }) => {
    const names = await Promise.all(['first', 'second'].map((message) => asked(work, message)));
    await opened(gate, work.signal);
    return text(names.join(' and '));
  });
  task('sample', async (work) => {
    const content = { type: 'text', text: 'a question' };
    const params = { messages: [{ role: 'user', content }], maxTokens: 9 };
    const answer = await work.ask({ method: 'sampling/createMessage', params });
    return text(answer.content.text);
  });
  task('fail', () => {
    throw new ProtocolError(-32050, 'API rate limit exceeded', { after: 5 });
  });
  task('nothing', () => {
    throw undefined;
  });
  task('thrown', () => {
    throw new Error('no such city');
  });
  task('wrong', () => ({ ...text('invalid input'), isError: true }));
  const outputSchema = fromJsonSchema({ type: 'object', properties: { n: { type: 'number' } } });
  task('structured', () => ({ ...text('7'), structuredContent: { n: 7 } }), {}, { outputSchema });
  task('impatient', async (work) => {
    void work.ask(question('Who are you?'));
    void work.ask({ method: 'sampling/createMessage' });
    await new Promise((resolve) => work.signal.addEventListener('abort', resolve));
  });
  task('big', (_, { bytes }) => text('x'.repeat(bytes)));
  tool('plain', () => text('plain'));
  tool('guarded', (given, context) => {
    const { name } = context.mcpReq.inputResponses ?? {};
    if (!name) return inputRequired({ inputRequests: { name: question('Who are you?') } });
    return tasks.run(context, async (work) =>
      text(`${name.content.name} and ${await asked(work, 'Who else?')}`),
    );
  });
  tool('count', async ({ done }, context) => {
    const count = (context.mcpReq.requestState()?.count ?? 0) + 1;
    return done ? text(count) : inputRequired({ requestState: await state.mint({ count }) });
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

// The scripted server on the official SDK for TypeScript, with one line of ours added:
// node typescript_app.mjs VERSION PORT JOURNAL GATES REVOKED [VARIANT [WORD…]]
//
// VERSION: 1.13 … 1.32, 2. VARIANT: with `cookie` a cookie names sessions, too; with `stateless` the app has none; with `json` it answers in
// JSON, with `json class` by a transport of its own; with `undeclared` it does not declare `listChanged`; `express`, `fastify` and `hono` are
// the framework, whose middleware puts headers on each response. WORD, of an app that tests/conformance/compare compares: `bare` is the app
// without our line; with `gzip` it compresses; with `cookies` it knows its visitors by one; with `stateless` it has no sessions.
// Its tools are those of stdio.py, without `raw`, and, after the runner's Nth `deploy`, `deployed_N`; it has one prompt, which no deploy
// changes. The app lets each bearer token in that begins with `t`, but for those whose name the folder REVOKED has as a file.
import { randomUUID } from 'node:crypto';
import fs from 'node:fs';
import http from 'node:http';
import { createRequire } from 'node:module';
import path from 'node:path';
import { Readable } from 'node:stream';

const [version, port, journalPath, gates, revoked, variant, ...words] = process.argv.slice(2);
const is = (word) => variant === word || words.includes(word);
// Another version of the library, to compare with: by MCP_SESSIOND_CLIENTS.
const clients = process.env.MCP_SESSIOND_CLIENTS || path.resolve(import.meta.dirname, '../../../client');
const { durable, session } = await import(path.join(clients, 'typescript/dist/index.js'));
const { serverSdk } = await import(path.join(clients, 'typescript/test/sdks/sdk.mjs'));
const { Server, Transport, webTransport, onList, onPrompts, onCall } = await serverSdk(version);
const journal = fs.openSync(journalPath, 'a');
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function opened(key) {
  while (!fs.existsSync(path.join(gates, key))) await sleep(10);
}

/** The tools that this version of the app has besides. */
const deploys = path.join(gates, '../deploys');
const added = fs.existsSync(deploys) ? [`deployed_${fs.readFileSync(deploys, 'utf8')}`] : [];

/** What the server declares of each list. */
const listed = variant === 'undeclared' ? {} : { listChanged: true };

function createServer() {
  const server = new Server(
    { name: 'scripted', version: '1' },
    { capabilities: { tools: listed, prompts: listed, logging: {} } },
  );
  let greeted = 0;
  server.oninitialized = () => greeted++;
  const own = new Map();
  const tools = {
    count: async (_, { extra }) => {
      const state = is('bare') || is('stateless') ? own : session(extra);
      const count = ((await state.get('count')) ?? 0) + 1;
      await state.set('count', count);
      return String(count);
    },
    echo: ({ value }) => JSON.stringify(value),
    log: async ({ times = 1, text = 'line' }, { notify }) => {
      for (let number = 1; number <= times; number++) {
        const params = { level: 'info', logger: 'scripted', data: `${text} ${number}` };
        await notify({ method: 'notifications/message', params });
      }
      return 'logged';
    },
    ask: async (_, { ask }) => {
      const { roots } = await ask();
      return String(roots.length);
    },
    big: ({ bytes }) => 'x'.repeat(bytes),
    nan: ({ value = 'NaN' }) => ({ content: [], structuredContent: { value: Number(value) } }),
    slow: async ({ key, steps = 0 }, { notify, token }) => {
      for (let progress = 1; token !== undefined && progress <= steps; progress++)
        await notify({ method: 'notifications/progress', params: { progressToken: token, progress } });
      await opened(key);
      return 'slow';
    },
    die: () => process.exit(1),
    greeted: () => String(greeted),
  };
  onPrompts(server, () => ({ prompts: [{ name: 'constant' }] }));
  onList(server, () => ({
    tools: [...Object.keys(tools), ...added].map((name) => ({ name, inputSchema: { type: 'object' } })),
  }));
  onCall(server, async ({ name, arguments: given = {} }, how) => {
    if (given.key !== undefined) fs.writeSync(journal, `${given.key}\n`);
    if (!tools[name]) throw Object.assign(new Error('there is no such tool'), { code: -32602 });
    const result = await tools[name](given, { ...how, ask: asking(how) });
    return typeof result === 'string' ? { content: [{ type: 'text', text: result }] } : result;
  });
  return server;
}

/** Asks for the roots, on the stream of the call. */
function asking({ extra }) {
  const request = { method: 'roots/list' };
  if (version === '2') return () => extra.mcpReq.send(request);
  return async () => {
    const { ListRootsResultSchema } = await import(path.join(clients, `typescript/test/sdks/node_modules/sdk-${version}/dist/esm/types.js`));
    return extra.sendRequest(request, ListRootsResultSchema);
  };
}

/** An app without sessions. */
class Stateless extends Transport {
  constructor(options) {
    super({ ...options, sessionIdGenerator: undefined });
  }
}

/** An app that answers in JSON. */
class Json extends Transport {
  constructor(options) {
    super({ ...options, enableJsonResponse: true });
  }
}

/** The app with our line. */
const kept = () =>
  durable(createServer, {
    service: 'scripted',
    transport: is('stateless') ? Stateless : is('json class') ? Json : Transport,
    ...(is('json') && { enableJsonResponse: true }),
    retryMs: 100,
    start: false,
    ...(is('cookie') && { cookie: 'mcp_session_id' }),
  });

/** The app without it, as the SDK's examples are: handlers of the same names. */
async function bare() {
  const WebTransport = await webTransport();
  const sessions = new Map();
  const headers = { 'content-type': 'application/json' };
  const error = { code: -32001, message: 'Session not found' };
  const unknown = JSON.stringify({ jsonrpc: '2.0', error, id: null });
  /** The transport of a session, or of a new one. Undefined: there is no such session. */
  const transportOf = async (Class, id) => {
    if (id && !is('stateless')) return sessions.get(id);
    const transport = new Class({
      sessionIdGenerator: is('stateless') ? undefined : randomUUID,
      onsessioninitialized: (begun) => void sessions.set(begun, transport),
      onsessionclosed: (ended) => void sessions.delete(ended),
    });
    await createServer().connect(transport);
    return transport;
  };
  const byNode = async (request, response) => {
    const transport = await transportOf(Transport, request.headers['mcp-session-id']);
    if (transport) await transport.handleRequest(request, response);
    else response.writeHead(404, headers).end(unknown);
  };
  const byWeb = async (request, parsedBody) => {
    const transport = await transportOf(WebTransport, request.headers.get('mcp-session-id'));
    return transport?.handleRequest(request, { parsedBody }) ?? new Response(unknown, { status: 404, headers });
  };
  return Object.assign(byNode, {
    fastify: async ({ method, url, headers, body }, reply) => {
      const response = await byWeb(new Request(new URL(url, 'http://localhost'), { method, headers }), body);
      reply.raw.once('pipe', () => reply.raw.flushHeaders());
      reply.code(response.status).headers(Object.fromEntries(response.headers));
      return reply.send(response.body ? Readable.fromWeb(response.body) : undefined);
    },
    hono: async (context) => {
      const { status, headers, body } = await byWeb(context.req.raw);
      return context.body(body, status, Object.fromEntries(headers));
    },
  });
}

const handler = is('bare') ? await bare() : kept();

/** The app's own check, before anything else. */
function isLetIn(request) {
  const token = /^Bearer (t[^/]*)$/.exec(request.headers.authorization ?? '')?.[1];
  if (token === undefined || fs.existsSync(path.join(revoked, token))) return false;
  // As `requireBearerAuth` of the SDK does. A token like tNAME.SUBJECT.ISSUER.ANYTHING names its user.
  const [, sub, iss] = token.split('.');
  request.auth = { token, clientId: 'client', scopes: [], ...(iss ? { extra: { sub, iss } } : {}) };
  return true;
}

/** What the frameworks are imported by: they are beside the SDKs. */
const load = createRequire(path.join(clients, 'typescript/test/sdks/sdk.mjs'));
const origin = 'http://localhost:3000';
const tell = (address) => console.log(`listening at http://127.0.0.1:${address.port}/mcp`);

/** Each with its own ways to put headers on a response (before the handler, and, but for Express, behind it), to compress and to know visitors. */
const frameworks = {
  http: () => {
    const server = http.createServer((request, response) => {
      const where = new URL(request.url, 'http://localhost').pathname;
      if (!isLetIn(request)) response.writeHead(401, { 'www-authenticate': 'Bearer' }).end();
      else if (where !== '/mcp') response.writeHead(404).end();
      else void handler(request, response);
    });
    server.listen(Number(port), '127.0.0.1', () => tell(server.address()));
  },
  express: () => {
    const app = load('express')();
    app.use(load('cors')({ origin }));
    if (is('gzip')) app.use(load('compression')({ threshold: 1 }));
    app.use((request, response, next) => {
      const visitor = is('cookies') && request.headers.cookie;
      response.set({ 'x-ratelimit-remaining': '9', 'x-frame-options': 'DENY' });
      if (visitor) response.set('x-visitor', visitor);
      else response.cookie('visitor', '1');
      if (isLetIn(request)) next();
      else response.status(401).end();
    });
    app.all('/mcp', handler);
    const server = app.listen(Number(port), '127.0.0.1', () => tell(server.address()));
  },
  fastify: () => {
    const app = load('fastify')();
    if (is('gzip')) app.register(load('@fastify/compress'), { threshold: 1 });
    if (is('cookies')) app.register(load('@fastify/cookie'));
    app.addHook('onRequest', async (request, reply) => {
      reply.headers({ 'access-control-allow-origin': origin, 'x-ratelimit-remaining': '9' });
      const visitor = request.cookies?.visitor;
      if (visitor) reply.header('x-visitor', visitor);
      else if (is('cookies')) reply.setCookie('visitor', '1', { httpOnly: true });
      if (!isLetIn(request.raw)) return reply.code(401).send();
    });
    app.addHook('onSend', async (_, reply) => {
      reply.header('x-frame-options', 'DENY');
      if (!is('cookies')) reply.header('set-cookie', 'visitor=1');
    });
    // Behind the plugins, which are loaded by now.
    app.after(() => app.all('/mcp', handler.fastify));
    void app.listen({ port: Number(port), host: '127.0.0.1' }).then(() => tell(app.server.address()));
  },
  hono: () => {
    const app = new (load('hono').Hono)();
    const { getCookie, setCookie } = load('hono/cookie');
    app.use(load('hono/cors').cors({ origin }));
    if (is('gzip')) app.use(load('hono/compress').compress({ threshold: 1 }));
    app.use(async (context, next) => {
      const visitor = is('cookies') && getCookie(context, 'visitor');
      context.header('x-ratelimit-remaining', '9');
      if (visitor) context.header('x-visitor', visitor);
      else setCookie(context, 'visitor', '1');
      if (!isLetIn(context.env.incoming)) return context.body(null, 401);
      await next();
      context.header('x-frame-options', 'DENY');
    });
    app.all('/mcp', handler.hono);
    load('@hono/node-server').serve({ fetch: app.fetch, port: Number(port), hostname: '127.0.0.1' }, tell);
  },
};
(frameworks[variant] ?? frameworks.http)();

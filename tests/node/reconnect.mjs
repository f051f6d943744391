// The official TypeScript client as a host that loses its servers and finds them again: node reconnect.mjs
//
// Orders are lines of JSON on standard input, each about the connection that it names `as` (or `main`). They are
// carried out beside each other, and each is answered by one line, {"id", "ok"} or {"id", "error": {"code", "message"}},
// with the `id` of the order, or its number, from 1.
//
//   {"do": "connect", "command": [program, …], "env": {}, "cwd", "mute": [method, …], "timeout_ms"}
//                                       answers pid, server, protocol and capabilities. What is mute is never answered
//   {"do": "connect", "url", "timeout_ms"}   the same over HTTP; answers session, server, protocol and
//                                       capabilities
//   {"do": "call", "tool", "arguments", "timeout_ms"}      answers the whole result
//   {"do": "cancel", "call": id}                           cancels a call, which is answered by an error then
//   {"do": "request", "method", "params", "timeout_ms"}    any other request; answers its result
//   {"do": "notify", "method", "params"}
//   {"do": "kill_front", "signal"}                         SIGKILL if nothing is said; waits for nothing
//   {"do": "close"}                                        as a host ends: closes the input, then TERM, then KILL
//   {"do": "events"}                                       all events of this connection so far
//
// What happens is told at once, by a line of its own, {"event", "as", …}: `notification` and `request` with method
// and params, `progress` with the call, `exited` with code and signal, `closed`, and `error`.
//
// Servers get the environment that the SDK passes by default, what the order adds, and MCP_SESSIOND_DIR where this
// process has it.
import readline from 'node:readline';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  CreateMessageRequestSchema, ElicitRequestSchema, ListRootsRequestSchema, ResultSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { fitting } from './known.mjs';

const inherited = process.env.MCP_SESSIOND_DIR ? { MCP_SESSIOND_DIR: process.env.MCP_SESSIOND_DIR } : {};
const connections = new Map();
const calls = new Map();
const events = [];

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

function tell(event) {
  events.push(event);
  say(event);
}

const answers = [
  [CreateMessageRequestSchema, () => (
    { role: 'assistant', content: { type: 'text', text: 'a fixed answer' }, model: 'fixed', stopReason: 'endTurn' })],
  [ElicitRequestSchema, ({ requestedSchema }) => ({ action: 'accept', content: fitting(requestedSchema) })],
  [ListRootsRequestSchema, () => ({ roots: [{ uri: 'file:///fixed/root', name: 'root' }] })],
];

// A client gives up after two attempts by default, which here is less time than it takes to start `serve` again.
const reconnectionOptions = {
  initialReconnectionDelay: 50, maxReconnectionDelay: 200, reconnectionDelayGrowFactor: 1.2, maxRetries: 200,
};

async function connect({ as, command: words = [], url, env, cwd, mute = [], timeout_ms: timeout }) {
  const [command, ...args] = words;
  const transport = url
    ? new StreamableHTTPClientTransport(new URL(url), { reconnectionOptions })
    : new StdioClientTransport({ command, args, cwd, env: { ...inherited, ...env } });
  const capabilities = { sampling: {}, elicitation: {}, roots: { listChanged: true } };
  const client = new Client({ name: 'reconnect.mjs', version: '1.0.0' }, { capabilities });
  for (const [schema, answer] of answers) {
    client.setRequestHandler(schema, ({ method, params }) => {
      tell({ event: 'request', as, method, params });
      return mute.includes(method) ? new Promise(() => {}) : answer(params);
    });
  }
  client.fallbackNotificationHandler = async ({ method, params }) => {
    tell({ event: 'notification', as, method, params });
  };
  client.onerror = ({ message }) => tell({ event: 'error', as, message });
  client.onclose = () => tell({ event: 'closed', as });
  let protocol;
  if (!url) transport.setProtocolVersion = (version) => { protocol = version; };
  connections.set(as, { client, transport });
  const connected = client.connect(transport, { timeout });
  if (url) {
    await connected;
    const [server, serves] = [client.getServerVersion(), client.getServerCapabilities()];
    return { session: transport.sessionId, server, protocol: transport.protocolVersion, capabilities: serves };
  }
  // The process is there as soon as the SDK was asked to connect, and is forgotten by it when it closes.
  const child = transport._process;
  child.once('exit', (code, signal) => tell({ event: 'exited', as, code, signal }));
  await connected;
  const [server, serves] = [client.getServerVersion(), client.getServerCapabilities()];
  return { pid: child.pid, server, protocol, capabilities: serves };
}

const orders = {
  connect,
  call: async ({ id, as, tool, arguments: given, timeout_ms: timeout }) => {
    const abort = new AbortController();
    calls.set(id, abort);
    const onprogress = (progress) => tell({ event: 'progress', as, call: id, ...progress });
    const options = { timeout, signal: abort.signal, onprogress };
    try {
      return await connections.get(as).client.callTool({ name: tool, arguments: given ?? {} }, undefined, options);
    } finally {
      calls.delete(id);
    }
  },
  cancel: ({ call }) => {
    calls.get(call).abort('cancelled by the test');
    return true;
  },
  request: ({ as, method, params, timeout_ms: timeout }) => (
    connections.get(as).client.request({ method, params }, ResultSchema, { timeout })),
  notify: async ({ as, method, params }) => {
    await connections.get(as).client.notification({ method, params });
    return true;
  },
  kill_front: ({ as, signal = 'SIGKILL' }) => process.kill(connections.get(as).transport.pid, signal),
  close: async ({ as }) => {
    await connections.get(as).client.close();
    return true;
  },
  events: ({ as }) => events.filter((event) => event.as === as),
};

async function carryOut(order) {
  const { id } = order;
  try {
    say({ id, ok: await orders[order.do](order) });
  } catch ({ code, message }) {
    say({ id, error: { code, message } });
  }
}

let number = 0;
for await (const line of readline.createInterface({ input: process.stdin })) {
  number += 1;
  carryOut({ id: number, as: 'main', ...JSON.parse(line) });
}
process.exit(0);

// The official TypeScript client as host of the example server: node host.mjs SERVER BROKER_SOCKET
//
// Orders are lines of JSON on standard input; each is answered with one line, in order.
//
//   {"start": [{"name", "args"}, …]}    all at once; answers what the tool `session` of each says
//   {"restart": [{"name", "args"}, …]}  the same, after killing all of these names, without waiting for their death
//   {"call": name, "tool": tool}        answers what the tool says
//   {"kill": [name, …]}                 SIGKILL, and waits until they are gone
//
// Servers get the environment that the SDK passes by default, and MCP_SESSIOND_DIR where this process has it: tests
// run beside each other, each with a daemon of its own. One test has a machine of its own and goes without.
import readline from 'node:readline';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

const [command, broker] = process.argv.slice(2);
const env = process.env.MCP_SESSIOND_DIR ? { MCP_SESSIOND_DIR: process.env.MCP_SESSIOND_DIR } : undefined;
const servers = new Map();

async function start({ name, args }) {
  const transport = new StdioClientTransport({ command, args: [broker, ...args], env });
  const client = new Client({ name: 'host.mjs', version: '1.0.0' });
  const gone = new Promise((resolve) => { client.onclose = resolve; });
  const server = { transport, client, gone };
  servers.set(name, server);
  await client.connect(transport);
  return call(server, 'session');
}

async function call({ client }, tool) {
  const { content } = await client.callTool({ name: tool, arguments: {} });
  return JSON.parse(content[0].text);
}

function kill(name) {
  const { transport, gone } = servers.get(name);
  process.kill(transport.pid, 'SIGKILL');
  return gone;
}

const orders = {
  start: (all) => Promise.all(all.map(start)),
  restart: (all) => {
    all.forEach(({ name }) => kill(name));
    return Promise.all(all.map(start));
  },
  call: (name, { tool }) => call(servers.get(name), tool),
  kill: async (names) => (await Promise.all(names.map(kill)), true),
};

for await (const line of readline.createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  const verb = Object.keys(order)[0];
  process.stdout.write(`${JSON.stringify(await orders[verb](order[verb], order))}\n`);
}
process.exit(0);

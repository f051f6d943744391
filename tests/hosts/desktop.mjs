// An imitation of Claude Desktop: one process that starts the same server several times, and says who it is each time.
//
//   node desktop.mjs COMMAND ARGUMENT…
//
// HOST_COMMAND is the same as a list of JSON, for a process whose arguments are to be a host's own.
// HOST_TITLE is what `ps` is to show instead of this command line, as programs on Electron show theirs.
// It is told by lines of JSON-RPC on its standard input:
//
//   open {panel, name}    starts a server for this panel, as the client `name`; answers once it has listed the tools. `seconds` is its
//                         limit for the connection, after which the SDK closes it
//   count {panel}         calls the tool and answers its text; an error's text where there was none
//   close {panel, how}    "orderly" as the SDK closes, else the signal's name; answers when the process is gone
//   said {panel}          what its servers wrote to standard error since this was last asked
import readline from 'node:readline';
import { createRequire } from 'node:module';

const require = createRequire(process.env.SDK_FROM);
const { Client } = await import(require.resolve('@modelcontextprotocol/sdk/client/index.js'));
const { StdioClientTransport } = await import(require.resolve('@modelcontextprotocol/sdk/client/stdio.js'));

const [command, ...args] = process.env.HOST_COMMAND ? JSON.parse(process.env.HOST_COMMAND) : process.argv.slice(2);
if (process.env.HOST_TITLE) process.title = process.env.HOST_TITLE;
const panels = new Map();
const said = new Map();

const verbs = {
  async open({ panel, name, version = '1.0.0', seconds = 60, environment = {} }) {
    const transport = new StdioClientTransport({ command, args, stderr: 'pipe', cwd: '/', env: environment });
    transport.stderr.on('data', (some) => said.set(panel, (said.get(panel) ?? '') + some));
    const client = new Client({ name, version });
    const gone = new Promise((resolve) => (client.onclose = resolve));
    panels.set(panel, { client, gone });
    await client.connect(transport, { timeout: seconds * 1000 });
    panels.get(panel).pid = transport.pid;
    await client.listTools();
    return transport.pid;
  },
  async count({ panel }) {
    const { content } = await panels.get(panel).client.callTool({ name: 'count', arguments: {} });
    return content[0].text;
  },
  async close({ panel, how }) {
    const { client, gone, pid } = panels.get(panel);
    if (how === 'orderly') await client.close();
    else process.kill(pid, how);
    await gone;
  },
  said({ panel }) {
    const text = said.get(panel) ?? '';
    said.delete(panel);
    return text;
  },
};

readline.createInterface({ input: process.stdin }).on('line', async (line) => {
  const { id, method, params } = JSON.parse(line);
  const result = await Promise.resolve(verbs[method](params)).catch((error) => `error: ${error.message}`);
  console.log(JSON.stringify({ jsonrpc: '2.0', id, result: result ?? null }));
});

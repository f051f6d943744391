// Whether a browser outlives the server that drives it: node browser.mjs [--pause] -- SERVER [ARGUMENT…]
//
// The server is @playwright/mcp. Opens a page, types into it, kills the process that was started, and connects again,
// by a new client and a new process, but from this one: a session belongs to its host. Prints lines of JSON: what is
// seen `before` and `after`, each {"at", "pid", "url", "typed"}, between them {"at": "killed"}, and at the end {"kept"}.
// The code is 0 if the page and what was typed are there still, else 1. With --pause it waits for a line of input after
// `before` and after `killed`.
import readline from 'node:readline';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

const given = process.argv.slice(2);
const dashes = given.indexOf('--');
const [command, ...args] = dashes < 0 ? [] : given.slice(dashes + 1);
if (!command) {
  console.error('usage: node browser.mjs [--pause] -- SERVER [ARGUMENT…]');
  process.exit(64);
}
const pause = given.slice(0, dashes).includes('--pause');
const env = process.env.MCP_SESSIOND_DIR ? { MCP_SESSIOND_DIR: process.env.MCP_SESSIOND_DIR } : undefined;
const input = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

const page = 'data:text/html,<title>Kept</title><input aria-label="Word">';
const typed = 'what was typed';

async function tell(line) {
  console.log(JSON.stringify(line));
  if (pause && line.at !== 'after') await input.next();
}

async function connect() {
  const transport = new StdioClientTransport({ command, args, env });
  const client = new Client({ name: 'browser.mjs', version: '1.0.0' });
  const gone = new Promise((resolve) => { client.onclose = resolve; });
  await client.connect(transport);
  const call = async (name, values = {}) => {
    const { content, isError } = await client.callTool({ name, arguments: values });
    if (isError) throw new Error(`${name}: ${content[0].text}`);
    return content.map(({ text }) => text ?? '').join('\n');
  };
  return { client, call, gone, pid: transport.pid };
}

async function seen({ call, pid }, at) {
  const snapshot = await call('browser_snapshot');
  const [, url = 'about:blank'] = snapshot.match(/Page URL: (.*)/) ?? [];
  return { at, pid, url, typed: snapshot.includes(typed) };
}

const first = await connect();
await first.call('browser_navigate', { url: page });
const [, ref] = (await first.call('browser_snapshot')).match(/textbox "Word".*\[ref=(\w+)\]/);
await first.call('browser_type', { element: 'the word', target: ref, text: typed });
const before = await seen(first, 'before');
await tell(before);

process.kill(first.pid, 'SIGKILL');
await first.gone;
await tell({ at: 'killed' });

const second = await connect();
const after = await seen(second, 'after');
await tell(after);
await second.client.close();

const kept = before.typed && after.typed && after.url === before.url;
console.log(JSON.stringify({ kept }));
process.exit(kept ? 0 : 1);

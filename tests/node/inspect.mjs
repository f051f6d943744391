// What the MCP inspector's command line says of a server: node inspect.mjs PLACE -- SERVER [ARGUMENT…]
//
// Prints every command with its output and exit code, to be compared with that of another run. Each is a process of its
// own and starts the server anew. PLACE and the environment are as in transcript.mjs, and fixed.mjs is as useful. The
// code is 1 if the server tells of no tools.
import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { getDefaultEnvironment } from '@modelcontextprotocol/sdk/client/stdio.js';
import { fitting, given, prepare } from './known.mjs';

const [place, dashes, ...server] = process.argv.slice(2);
if (dashes !== '--' || !server.length) {
  console.error('usage: node inspect.mjs PLACE -- SERVER [ARGUMENT…]');
  process.exit(64);
}
const files = prepare(path.resolve(place));
const env = { ...getDefaultEnvironment(), MEMORY_FILE_PATH: path.join(path.resolve(place), 'memory.jsonl') };
if (process.env.MCP_SESSIOND_DIR) env.MCP_SESSIOND_DIR = process.env.MCP_SESSIOND_DIR;
const inspector = fileURLToPath(new URL('node_modules/.bin/mcp-inspector', import.meta.url));

function inspect(...asked) {
  const passed = Object.entries(env).filter(([name]) => !(name in getDefaultEnvironment()));
  const args = ['--cli', ...passed.flatMap(([name, value]) => ['-e', `${name}=${value}`]), ...server, ...asked];
  const { stdout, status } = spawnSync(inspector, args, { env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
  console.log(`$ ${asked.join(' ')}\n${stdout}= ${status}`);
  return status === 0 ? JSON.parse(stdout) : {};
}

// Only what fits on a command line.
const plain = (values) => Object.values(values).every((value) => typeof value !== 'object');
const pairs = (flag, values) => Object.entries(values).flatMap(([name, value]) => [flag, `${name}=${value}`]);

// Two runs in which nothing worked would be the same, too.
const { tools } = inspect('--method', 'tools/list');
if (!tools?.length) process.exit(1);
for (const { name, inputSchema, execution } of tools) {
  if (execution?.taskSupport === 'required') continue;
  const values = (given(name, files) ?? [fitting(inputSchema)]).find(plain);
  if (values) inspect('--method', 'tools/call', '--tool-name', name, ...pairs('--tool-arg', values));
}
inspect('--method', 'prompts/list');
// The first few will do. Each costs two seconds where the server, still waiting for the roots that it asked for, does
// not end with its input.
for (const { uri } of (inspect('--method', 'resources/list').resources ?? []).slice(0, 2)) {
  inspect('--method', 'resources/read', '--uri', uri);
}
inspect('--method', 'resources/templates/list');

// Everything that the official TypeScript client can ask of a server, kept as it went over the wire:
//
//   node transcript.mjs OUT PLACE -- SERVER [ARGUMENT…]
//
// OUT takes one line for each message, in the order in which they were seen: `> ` or `< ` (from the client, from the
// server), then the bytes. PLACE is a directory; PLACE/files is made anew, with what the servers work on in it, and is
// the client's root. compare.mjs compares two of these. For that, let the server be started with `--import fixed.mjs`,
// which this process imports too, and with the same environment: the SDK's default, MEMORY_FILE_PATH in PLACE,
// and MCP_SESSIOND_DIR where this process has it.
//
// One thing is asked after the other, and what a server does of itself is waited for, so that there is one order only.
import './fixed.mjs';
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { InMemoryTaskStore } from '@modelcontextprotocol/sdk/experimental/tasks';
import {
  CallToolResultSchema, CreateMessageRequestSchema, CreateTaskResultSchema, ElicitRequestSchema, ErrorCode,
  ListRootsRequestSchema, McpError, ResultSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { fitting, known, prepare } from './known.mjs';
import { Wire } from './wire.mjs';

const [out, place, dashes, command, ...args] = process.argv.slice(2);
if (dashes !== '--' || !command) {
  console.error('usage: node transcript.mjs OUT PLACE -- SERVER [ARGUMENT…]');
  process.exit(64);
}
const files = prepare(path.resolve(place));
const env = { MEMORY_FILE_PATH: path.join(path.resolve(place), 'memory.jsonl') };
if (process.env.MCP_SESSIOND_DIR) env.MCP_SESSIOND_DIR = process.env.MCP_SESSIOND_DIR;

const wire = new Wire({ command, args, env });
const taskStore = new InMemoryTaskStore();
const client = new Client(
  { name: 'transcript.mjs', version: '1.0.0' },
  {
    capabilities: {
      sampling: {},
      elicitation: { form: {}, url: {} },
      roots: { listChanged: true },
      tasks: { list: {}, cancel: {}, requests: { sampling: { createMessage: {} }, elicitation: { create: {} } } },
    },
    taskStore,
  },
);

const roots = [{ uri: pathToFileURL(files).href, name: 'files' }];
client.setRequestHandler(ListRootsRequestSchema, () => ({ roots }));
const answering = (answer) => async ({ params }, { taskStore }) => {
  if (!params.task) return answer(params);
  // The task is over when it is first asked for, and the answer that it was made goes before the news that it is over.
  const task = await taskStore.createTask({ ttl: params.task.ttl });
  setImmediate(() => taskStore.storeTaskResult(task.taskId, 'completed', answer(params)));
  return { task };
};
client.setRequestHandler(CreateMessageRequestSchema, answering(() => (
  { role: 'assistant', content: { type: 'text', text: 'Something.' }, model: 'fixed', stopReason: 'endTurn' })));
client.setRequestHandler(ElicitRequestSchema, answering(({ mode, requestedSchema }) => (
  mode === 'url' ? { action: 'accept' } : { action: 'accept', content: fitting(requestedSchema) })));

// An error is an answer like any other. That nobody answers is none.
async function attempt(asked) {
  try {
    return await asked;
  } catch (error) {
    const gone = [ErrorCode.ConnectionClosed, ErrorCode.RequestTimeout].includes(error.code);
    if (!(error instanceof McpError) || gone) throw error;
    return undefined;
  }
}

async function pages(list, key) {
  const all = [];
  for (let cursor; ;) {
    const page = await list.call(client, cursor && { cursor });
    all.push(...page[key]);
    if (!(cursor = page.nextCursor)) return all;
  }
}

async function call(tool, given) {
  if (tool.execution?.taskSupport !== 'required') {
    return attempt(client.callTool({ name: tool.name, arguments: given }));
  }
  const params = { name: tool.name, arguments: given, task: { ttl: 60_000 } };
  const { task } = await client.request({ method: 'tools/call', params }, CreateTaskResultSchema);
  // Not tasks/get, again and again: how often one asks before it is done is chance.
  await attempt(client.experimental.tasks.getTaskResult(task.taskId, CallToolResultSchema));
  return attempt(client.experimental.tasks.getTask(task.taskId));
}

async function tools(table) {
  const all = await pages(client.listTools, 'tools');
  for (const tool of all) {
    for (const given of table.tools[tool.name] ?? [fitting(tool.inputSchema)]) await call(tool, given);
  }
  await attempt(client.callTool({ name: 'no-such-tool', arguments: {} }));
}

async function complete(ref, name) {
  for (const value of ['', 'E', 'T', '1']) {
    await attempt(client.complete({ ref, argument: { name, value }, context: { arguments: { department: 'Sales' } } }));
  }
}

async function prompts(table, completes) {
  for (const { name, arguments: wanted = [] } of await pages(client.listPrompts, 'prompts')) {
    const usual = { department: 'Sales', name: 'Eve', resourceType: 'Text', resourceId: '1' };
    const some = Object.fromEntries(wanted.map((one) => [one.name, usual[one.name] ?? 'text']));
    for (const given of table.prompts[name] ?? [some]) await attempt(client.getPrompt({ name, arguments: given }));
    for (const one of completes ? wanted : []) await complete({ type: 'ref/prompt', name }, one.name);
  }
  await attempt(client.getPrompt({ name: 'no-such-prompt' }));
}

async function readAll() {
  for (const { uri } of await pages(client.listResources, 'resources')) await attempt(client.readResource({ uri }));
}

async function resources(table, completes) {
  await readAll();
  for (const { uriTemplate } of await pages(client.listResourceTemplates, 'resourceTemplates')) {
    for (const value of ['1', '2', 'none']) {
      await attempt(client.readResource({ uri: uriTemplate.replace(/\{.*?\}/g, value) }));
    }
    const names = [...uriTemplate.matchAll(/\{(.*?)\}/g)].map((found) => found[1]);
    for (const name of completes ? names : []) await complete({ type: 'ref/resource', uri: uriTemplate }, name);
  }
  await attempt(client.readResource({ uri: 'none://such' }));
  if (!table.subscribed) return;
  const { uri, tool, arguments: given = {} } = table.subscribed;
  await client.subscribeResource({ uri });
  // Twice: what is toggled on goes off.
  await client.callTool({ name: tool, arguments: given });
  await client.callTool({ name: tool, arguments: given });
  await client.unsubscribeResource({ uri });
}

async function progress({ slow, cancelled }) {
  if (!slow) return;
  await client.callTool(slow, undefined, { onprogress() {} });
  const abort = new AbortController();
  const before = wire.lines.length;
  const options = { signal: abort.signal, onprogress: () => abort.abort('enough') };
  await client.callTool({ name: cancelled.name, arguments: cancelled.arguments }, undefined, options).then(
    () => { throw new Error('was not cancelled'); },
    () => {},
  );
  await wire.until(cancelled.over, before);
}

await client.connect(wire);
const table = known(client.getServerVersion().name, files);
const can = client.getServerCapabilities();
if (table.rests) await wire.until(table.rests);
await client.ping();
if (can.logging) await client.setLoggingLevel('debug');
if (can.prompts) await prompts(table, can.completions);
if (can.resources) await resources(table, can.completions);
if (can.tools) await tools(table);
await progress(table);
if (can.tasks) await attempt(client.experimental.tasks.listTasks());
// What tools may have brought about.
if (can.resources) await readAll();

const asked = wire.lines.length;
roots.push({ uri: pathToFileURL(path.join(files, 'deep')).href });
await client.sendRootsListChanged();
if (table.rests) await wire.until(table.rootsSeen ?? table.rests, asked);
await attempt(client.request({ method: 'no/such' }, ResultSchema));
if (can.logging) await client.setLoggingLevel('emergency');
await client.ping();
await client.close();
taskStore.cleanup();

const marks = { client: '> ', server: '< ' };
const lines = wire.lines.flatMap(({ from, bytes }) => [Buffer.from(marks[from]), bytes, Buffer.from('\n')]);
if (wire.unfinished.length) lines.push(Buffer.from('<…'), wire.unfinished, Buffer.from('\n'));
fs.writeFileSync(out, Buffer.concat(lines));

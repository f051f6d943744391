// A server of MCP 2025-11-25 with the SDK's experimental tasks: node tasks-v1.mjs VERSION PORT
//
//   delay {gate, fail}    a task: answers `done` when the file `gate` is there; `fail`: as a failure. `message`: says
//                         so first, `late`: behind the gate. `bytes`: answers so many
//   ask                   a task: asks the client for its name, tells of it, and greets it
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { durable, SessionTaskQueue, SessionTaskStore } from '../../dist/index.js';

const [version, port = '0'] = process.argv.slice(2);
const { McpServer } = await import(`sdk-${version}/server/mcp.js`);
const { StreamableHTTPServerTransport: transport } = await import(`sdk-${version}/server/streamableHttp.js`);
const { ElicitResultSchema } = await import(`sdk-${version}/types.js`);
const say = (line) => process.stdout.write(`${line}\n`);

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

const elicitation = {
  method: 'elicitation/create',
  params: {
    mode: 'form',
    message: 'Your name?',
    requestedSchema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
  },
};
const text = (text, more = {}) => ({ content: [{ type: 'text', text }], ...more });

function createServer() {
  const log = (_, line) => say(line);
  const server = new McpServer(
    { name: 'tasks', version: '1.0.0' },
    {
      capabilities: { logging: {}, tasks: { list: {}, cancel: {}, requests: { tools: { call: {} } } } },
      taskStore: new SessionTaskStore(undefined, { log }),
      taskMessageQueue: new SessionTaskQueue(),
    },
  );
  const tool = (name, work) =>
    server.experimental.tasks.registerToolTask(
      name,
      { description: name, inputSchema: {}, execution: { taskSupport: 'required' } },
      {
        createTask: async (_, extra) => {
          const task = await extra.taskStore.createTask({ ttl: extra.taskRequestedTtl, pollInterval: 10 });
          // Nobody waits for it, and the SDK's own part of it may reject.
          void work(extra._meta?.given ?? {}, extra, task.taskId).catch((error) => say(`rejected: ${error}`));
          return { task };
        },
        getTask: (_, extra) => extra.taskStore.getTask(extra.taskId),
        getTaskResult: (_, extra) => extra.taskStore.getTaskResult(extra.taskId),
      },
    );
  tool('delay', async ({ gate, fail, message, late, bytes }, { taskStore }, taskId) => {
    if (message) await taskStore.updateTaskStatus(taskId, 'working', message);
    say(`working ${taskId}`);
    await opened(gate);
    if (late) await taskStore.updateTaskStatus(taskId, 'working', late);
    const result = fail ? text('no such city', { isError: true }) : text(bytes ? 'x'.repeat(bytes) : 'done');
    await taskStore.storeTaskResult(taskId, fail ? 'failed' : 'completed', result);
    say(`stored ${taskId}`);
  });
  tool('ask', async (_, extra, taskId) => {
    const relatedTask = { taskId };
    const names = [];
    for (let n = 0; n < 2; n++) {
      const { content } = await extra.sendRequest(elicitation, ElicitResultSchema, { relatedTask });
      names.push(content.name);
      await extra.taskStore.updateTaskStatus(taskId, 'working', `asked ${n + 1}`);
    }
    const params = { level: 'info', data: 'soon' };
    await server.server.notification({ method: 'notifications/message', params }, { relatedTask });
    await extra.taskStore.storeTaskResult(taskId, 'completed', text(`Hello, ${names.join(', ')}!`));
  });
  return server;
}

const handler = durable(createServer, { service: 'tasks-v1', transport, retryMs: 50, start: false });
const server = http.createServer(handler);
server.listen(Number(port), '127.0.0.1', () =>
  say(`listening at http://127.0.0.1:${server.address().port}/mcp`),
);

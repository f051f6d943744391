// The tasks of MCP 2025-11-25, which the SDK's v1 has as an experiment: its `TaskStore` and `TaskMessageQueue`.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { kill, lines, World } from './lib/daemon.mjs';

let world;
before(async () => {
  world = await new World().start();
});
after(() => world.end());

const VERSIONS = ['1.24', '1.26', '1.29', '1.32'];
let gates = 0;
const gate = () => {
  const file = path.join(world.base, `gate-${++gates}`);
  return { file, open: () => writeFileSync(file, '') };
};

async function serve(version, port = 0) {
  const script = path.join(import.meta.dirname, 'sdks/tasks-v1.mjs');
  const child = spawn(process.execPath, [script, version, String(port)], {
    env: world.env,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const out = lines(child.stdout);
  const [, url] = await out.next(/^listening at (.*)$/);
  return { child, out, url, port: new URL(url).port };
}

/** The official client of a version. Its `begin` gives the id of a new task. */
async function connect(version, url) {
  const { Client } = await import(`./sdks/node_modules/sdk-${version}/dist/esm/client/index.js`);
  const { StreamableHTTPClientTransport } = await import(
    `./sdks/node_modules/sdk-${version}/dist/esm/client/streamableHttp.js`
  );
  const types = await import(`./sdks/node_modules/sdk-${version}/dist/esm/types.js`);
  const capabilities = { elicitation: {}, tasks: { list: {}, cancel: {} } };
  const client = new Client({ name: 'tester', version: '1.0.0' }, { capabilities });
  const notes = [];
  client.fallbackNotificationHandler = async (note) => void notes.push(note);
  let asked = 0;
  client.setRequestHandler(types.ElicitRequestSchema, () => ({
    action: 'accept',
    content: { name: `name ${++asked}` },
  }));
  const reconnectionOptions = {
    initialReconnectionDelay: 50,
    maxReconnectionDelay: 200,
    reconnectionDelayGrowFactor: 1.2,
    maxRetries: 200,
  };
  const transport = new StreamableHTTPClientTransport(new URL(url), { reconnectionOptions });
  await client.connect(transport);
  const { tasks } = client.experimental;
  const begin = async (name, given = {}, task = { ttl: 600_000 }) => {
    const params = { name, arguments: {}, _meta: { given } };
    const made = await client.request({ method: 'tools/call', params }, types.CreateTaskResultSchema, {
      task,
    });
    return made.task;
  };
  const result = (taskId) => tasks.getTaskResult(taskId, types.CallToolResultSchema);
  return { client, tasks, begin, result, notes, types };
}

for (const version of VERSIONS) {
  test(`SDK ${version}: a task is got, listed, cancelled and told, asks its client, and survives its server`, async () => {
    const first = await serve(version);
    const { client, tasks, begin, result, notes } = await connect(version, first.url);
    const { file, open } = gate();
    const task = await begin('delay', { gate: file });
    assert.deepEqual([task.status, task.ttl, task.pollInterval], ['working', 600_000, 10]);
    assert.equal((await tasks.getTask(task.taskId)).createdAt, task.createdAt);
    const waiting = result(task.taskId);
    open();
    const { content, _meta } = await waiting;
    assert.equal(content[0].text, 'done');
    assert.equal(_meta['io.modelcontextprotocol/related-task'].taskId, task.taskId);
    const failed = await begin('delay', { fail: true });
    assert.equal((await result(failed.taskId)).isError, true);
    assert.equal((await tasks.getTask(failed.taskId)).status, 'failed');

    const slow = await begin('delay', { gate: gate().file });
    assert.equal((await tasks.cancelTask(slow.taskId)).status, 'cancelled');
    await assert.rejects(tasks.cancelTask(slow.taskId), ({ code }) => code === -32602);
    await assert.rejects(tasks.getTask('none'), { code: -32602 });
    await assert.rejects(tasks.getTask(' ¿'), { code: -32602 });
    const asking = await begin('ask');
    assert.equal((await result(asking.taskId)).content[0].text, 'Hello, name 1, name 2!');
    assert.equal((await tasks.getTask(asking.taskId)).statusMessage, 'asked 2');
    assert.ok(notes.some(({ params }) => params.data === 'soon'));

    const lost = await begin('delay', { gate: gate().file, message: 'half' });
    while ((await tasks.getTask(lost.taskId)).statusMessage !== 'half');
    await kill(first.child);
    const second = await serve(version, first.port);
    assert.equal((await result(task.taskId)).content[0].text, 'done', 'in the next process');
    let now;
    do now = await tasks.getTask(lost.taskId);
    while (now.status === 'working');
    assert.equal(now.status, 'failed');
    assert.match(now.statusMessage, /outcome.*unknown/);
    const unknown = await result(lost.taskId).then(assert.fail, (error) => error);
    assert.deepEqual([unknown.code, unknown.data], [-32603, { outcome: 'unknown' }]);
    const listed = (await tasks.listTasks()).tasks.map(({ taskId, status }) => [taskId, status]);
    const all = { [task.taskId]: 'completed', [failed.taskId]: 'failed', [slow.taskId]: 'cancelled' };
    Object.assign(all, { [asking.taskId]: 'completed', [lost.taskId]: 'failed' });
    assert.deepEqual(Object.fromEntries(listed), all);
    const other = await connect(version, second.url);
    assert.deepEqual((await other.tasks.listTasks()).tasks, [], 'nothing of another session');
    await assert.rejects(other.tasks.getTask(task.taskId), { code: -32602 });
    await assert.rejects(other.result(task.taskId), { code: -32602 });
    await assert.rejects(other.tasks.cancelTask(lost.taskId), { code: -32602 });
    await Promise.all([client.close(), other.client.close()]);
    await kill(second.child);
  });
}

test('a result waits for a daemon that is away, and one that is too large says so', async () => {
  const server = await serve('1.32');
  const { client, begin, tasks, result } = await connect('1.32', server.url);
  const { file, open } = gate();
  const message = 'ä'.repeat(3_000);
  const waiting = await begin('delay', { gate: file, message });
  const told = await begin('delay', { gate: file });
  await server.out.next(new RegExp(`^working ${waiting.taskId}`));
  await server.out.next(new RegExp(`^working ${told.taskId}`));
  assert.equal((await tasks.getTask(waiting.taskId)).statusMessage, 'ä'.repeat(2_048));
  await world.kill();
  open();
  for (let n = 0; n < 2; n++) await server.out.next(/waits to be stored/);
  await world.start();
  for (const { taskId } of [waiting, told]) {
    await server.out.next(new RegExp(`^stored ${taskId}`));
    assert.equal((await result(taskId)).content[0].text, 'done');
  }
  const large = await begin('delay', { bytes: 1_100_000 });
  const error = await result(large.taskId).then(assert.fail, (error) => error);
  assert.deepEqual([error.code, error.data], [-32603, { outcome: 'not_kept' }]);
  await client.close();
  await kill(server.child);
});

test("the SDK's updateTaskStatus and sendRequest reject while the daemon is away and after a cancellation, and the store does not", async () => {
  const server = await serve('1.32');
  const { client, begin, tasks } = await connect('1.32', server.url);
  const { file, open } = gate();
  const told = await begin('delay', { gate: file, late: 'too late' });
  const stored = await begin('delay', { gate: file });
  const asking = await begin('ask');
  while ((await tasks.getTask(asking.taskId)).status !== 'input_required');
  for (const { taskId } of [told, stored, asking]) await tasks.cancelTask(taskId);
  await server.out.next(/^rejected: .*cancelled or completed/);
  open();
  await server.out.next(new RegExp(`^stored ${stored.taskId}`));
  await server.out.next(/^rejected: .*terminal status "cancelled"/);
  for (const { taskId } of [told, stored])
    assert.equal((await tasks.getTask(taskId)).status, 'cancelled', 'the server goes on');
  const away = gate();
  const { taskId } = await begin('delay', { gate: away.file, late: 'half' });
  await server.out.next(new RegExp(`^working ${taskId}`));
  await world.kill();
  away.open();
  await server.out.next(/^rejected: .*mcp-sessiond can't be asked/);
  await world.start();
  assert.equal((await tasks.getTask(taskId)).status, 'working');
  await client.close();
  await kill(server.child);
});

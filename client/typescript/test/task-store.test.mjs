// The tasks of MCP 2025-11-25, which the SDK's v1 has as an experiment: its `TaskStore` and `TaskMessageQueue`.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { SessionTaskQueue, SessionTaskStore, Sessions } from '../dist/index.js';
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

    const lost = await begin('delay', { gate: gate().file });
    await kill(first.child);
    const second = await serve(version, first.port);
    assert.equal((await result(task.taskId)).content[0].text, 'done', 'in the next process');
    let now;
    do now = await tasks.getTask(lost.taskId);
    while (now.status === 'working');
    assert.equal(now.status, 'failed');
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

test('the store and the queue of a session do what those of the SDK do', async () => {
  const own = await import('./sdks/node_modules/sdk-1.32/dist/esm/experimental/tasks/stores/in-memory.js');
  const sessions = Sessions.ofService('alone', world.options);
  const session = await sessions.create();
  const pairs = [
    [new own.InMemoryTaskStore(), new own.InMemoryTaskMessageQueue()],
    [new SessionTaskStore(session), new SessionTaskQueue(session)],
  ];
  for (const [store, queue] of pairs) {
    const create = (ttl) =>
      store.createTask({ ttl, pollInterval: 5 }, 1, { method: 'tools/call' }, session.id);
    const { taskId, status, ttl, pollInterval } = await create(60_000);
    assert.deepEqual([status, ttl, pollInterval], ['working', 60_000, 5]);
    const is = async (id = taskId) => (await store.getTask(id, session.id)).status;
    for (const next of ['input_required', 'input_required', 'working', 'input_required', 'working']) {
      await store.updateTaskStatus(taskId, next, `is ${next}`, session.id);
      assert.equal(await is(), next);
      assert.equal((await store.getTask(taskId, session.id)).statusMessage, `is ${next}`);
    }
    await assert.rejects(store.getTaskResult(taskId, session.id));
    await store.storeTaskResult(taskId, 'completed', { content: [] }, session.id);
    assert.deepEqual(await store.getTaskResult(taskId, session.id), { content: [] });
    await assert.rejects(store.updateTaskStatus(taskId, 'cancelled', 'no', session.id));
    assert.equal(await is(), 'completed');
    const failed = await create(60_000);
    await store.updateTaskStatus(failed.taskId, 'failed', 'why', session.id);
    assert.deepEqual((await store.getTask(failed.taskId, session.id)).statusMessage, 'why');
    assert.equal(await store.getTask('none', session.id), null);
    assert.equal((await store.listTasks(undefined, session.id)).tasks.length, 2);
    await assert.rejects(store.listTasks('none', session.id));
    const { taskId: id } = await create(60_000);
    const say = (n) => ({ type: 'notification', timestamp: n, message: { n } });
    for (let n = 1; n <= 3; n++) await queue.enqueue(id, say(n), session.id, 3);
    await assert.rejects(queue.enqueue(id, say(4), session.id, 3));
    assert.deepEqual(await queue.dequeue(id, session.id), say(1));
    assert.deepEqual(await queue.dequeueAll(id, session.id), [say(2), say(3)]);
    assert.equal(await queue.dequeue(id, session.id), undefined);
    assert.deepEqual(await queue.dequeueAll(id, session.id), []);
  }
});

test('a queue that several processes change loses and repeats nothing, and a task that has ended asks nothing', async () => {
  const sessions = () => Sessions.ofService('alone', world.options);
  const session = await sessions().create();
  const store = new SessionTaskStore(session);
  const { taskId } = await store.createTask({}, 1, {});
  const queues = await Promise.all(
    Array.from({ length: 4 }, async () => new SessionTaskQueue(await sessions().open(session.id))),
  );
  const say = (n) => ({ type: 'notification', timestamp: 0, message: { n } });
  await Promise.all(Array.from({ length: 40 }, (_, n) => queues[n % 4].enqueue(taskId, say(n))));
  const taken = await Promise.all(Array.from({ length: 40 }, (_, n) => queues[n % 4].dequeue(taskId)));
  assert.deepEqual(
    taken.map(({ message }) => message.n).sort((a, b) => a - b),
    [...Array(40).keys()],
  );
  await queues[0].enqueue(taskId, { type: 'request', timestamp: 0, message: {} });
  await queues[0].enqueue(taskId, say(41));
  await store.storeTaskResult(taskId, 'completed', {});
  assert.deepEqual(await queues[1].dequeue(taskId), say(41));
  assert.equal(await queues[1].dequeue(taskId), undefined);
  await store.storeTaskResult(taskId, 'completed', { late: true });
  assert.deepEqual(await store.getTaskResult(taskId), {}, 'what comes too late changes nothing');
  await assert.rejects(store.createTask({}, 1, {}, 'another session'), /another session/);
  const { taskId: toggled } = await store.createTask({}, 1, {});
  for (let n = 0; n < 70; n++) {
    await store.updateTaskStatus(toggled, 'input_required');
    await store.updateTaskStatus(toggled, 'working', `round ${n}`);
  }
  const { status, statusMessage } = await store.getTask(toggled);
  assert.deepEqual([status, statusMessage], ['input_required', 'round 69']);
});

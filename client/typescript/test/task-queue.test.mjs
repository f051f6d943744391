// The `TaskStore` and the `TaskMessageQueue` of a session, without a server.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { SessionTaskQueue, SessionTaskStore, Sessions } from '../dist/index.js';
import { between } from './lib/between.mjs';
import { World } from './lib/daemon.mjs';

let world;
before(async () => {
  world = await new World().start();
});
after(() => world.end());

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

test('a queue whose change is lost on its way, or whose answer is, loses and repeats nothing', async (t) => {
  const session = await Sessions.ofService('alone', world.options).create();
  const store = new SessionTaskStore(session);
  const other = new SessionTaskQueue(session);
  let meanwhile;
  const line = await between(world, async (method) => {
    if (method !== 'write_state' || !meanwhile) return undefined;
    const [what, change] = meanwhile;
    meanwhile = undefined;
    if (what === 'break') await change();
    return what;
  });
  const own = new SessionTaskQueue(await Sessions.ofService('alone', line.options).open(session.id));
  const say = (n) => ({ type: 'notification', timestamp: 0, message: { n } });
  /** What `work` gives where its change is lost and `change` comes first, and what is left then. */
  const lost = async (what, work, change) => {
    const { taskId } = await store.createTask({}, 1, {});
    for (const n of [1, 2, 3]) await other.enqueue(taskId, say(n));
    let changed;
    meanwhile = [what, async () => (changed = await change(taskId))];
    const given = await work(taskId);
    assert.equal(meanwhile, undefined, 'the line was broken');
    if (what === 'lose') changed = await change(taskId);
    const numbers = (messages) => [messages].flat().map((message) => message?.message.n);
    return [given, changed, await other.dequeueAll(taskId)].map(numbers);
  };
  const dequeue = (queue) => (id) => queue.dequeue(id);
  const dequeueAll = (queue) => (id) => queue.dequeueAll(id);
  const enqueue = (queue, n) => (id) => queue.enqueue(id, say(n)).then(() => []);
  assert.deepEqual(await lost('break', dequeue(own), dequeue(other)), [[2], [1], [3]]);
  assert.deepEqual(await lost('break', dequeueAll(own), dequeue(other)), [[2, 3], [1], []]);
  assert.deepEqual(await lost('break', enqueue(own, 4), enqueue(other, 5)), [[], [], [1, 2, 3, 5, 4]]);
  assert.deepEqual(await lost('lose', dequeue(own), dequeue(other)), [[1], [2], [3]]);
  assert.deepEqual(await lost('lose', dequeueAll(own), enqueue(other, 4)), [[1, 2, 3], [], [4]]);
  assert.deepEqual(await lost('lose', enqueue(own, 4), dequeue(other)), [[], [1], [2, 3, 4]]);
  // The queue is empty then.
  assert.deepEqual(await lost('lose', dequeueAll(own), dequeue(other)), [[1, 2, 3], [undefined], []]);
  line.close();
});

test('tasks are listed a page at a time', async () => {
  const session = await Sessions.ofService('alone', world.options).create();
  const store = new SessionTaskStore(session);
  const made = [];
  for (let n = 0; n < 120; n++) made.push((await store.createTask({}, 1, {})).taskId);
  const pages = [];
  for (let cursor; cursor !== undefined || pages.length === 0; ) {
    const { tasks, nextCursor } = await store.listTasks(cursor);
    pages.push(tasks.map(({ taskId }) => taskId));
    cursor = nextCursor;
  }
  assert.deepEqual(
    pages.map(({ length }) => length),
    [50, 50, 20],
  );
  assert.deepEqual(pages.flat().sort(), made.sort());
});

test('where there is no session, what is told of a task is not kept, and nothing rejects', async () => {
  const said = [];
  const store = new SessionTaskStore(undefined, { log: (_, line) => said.push(line) });
  await store.storeTaskResult('t', 'completed', {});
  await store.updateTaskStatus('t', 'working', 'half');
  assert.equal(said.length, 2);
  for (const line of said) assert.match(line, /a change of a task is not kept: .*no session here/);
  await assert.rejects(store.updateTaskStatus('t', 'cancelled'), { code: -32603 });
});

// The Tasks extension on real processes: what tests/conformance/tasks, which has the rules of SEP-2663, does not ask of every language.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { Sessions } from '../dist/index.js';
import { kill, World } from './lib/daemon.mjs';
import { Modern, serveTasks } from './lib/modern.mjs';

let world;
before(async () => {
  world = await new World().start();
});
after(() => world.end());

let gates = 0;
const gate = () => {
  const file = path.join(world.base, `gate-${++gates}`);
  return { file, open: () => writeFileSync(file, '') };
};

test('a subscription is refused while the daemon is away, and taken afterwards', async () => {
  const server = await serveTasks(world, 0, 'reject', 500);
  const client = new Modern(server.url);
  const { taskId } = await client.call('work', { gate: gate().file });
  await world.kill();
  for (let n = 0; n < 9; n++) {
    const { status, code } = await client.error('subscriptions/listen', {
      notifications: { taskIds: [taskId] },
    });
    assert.deepEqual([status, code], [503, -32603]);
  }
  await world.start();
  assert.equal((await client.status(taskId, 'working')).taskId, taskId);
  await kill(server.child);
});

for (const who of ['caller', 'auth'])
  test(`behind express.json() a task belongs to whom the middleware names, as \`${who}\``, async () => {
    const server = await serveTasks(world, 0, 'reject', 10_000, who);
    const [ann, bob, nobody] = ['ann', 'bob', undefined].map((user) => new Modern(server.url, { user }));
    const { file, open } = gate();
    const { taskId } = await ann.call('work', { gate: file });
    assert.equal((await ann.get(taskId)).status, 'working');
    for (const other of [bob, nobody]) {
      assert.equal((await other.error('tasks/get', { taskId })).code, -32602);
      assert.equal((await other.error('tasks/cancel', { taskId })).code, -32602);
      const { next, stop } = await other.listen({ taskIds: [taskId] });
      assert.equal((await next()).params.notifications.taskIds, undefined);
      stop();
    }
    const done = ann.status(taskId, 'completed');
    open();
    assert.equal((await done).result.content[0].text, 'worked');
    assert.equal((await ann.error('subscriptions/listen', { notifications: { taskIds: 1 } })).code, -32602);
    const own = await nobody.call('work');
    assert.equal((await nobody.status(own.taskId, 'completed')).result.content[0].text, 'worked');
    assert.equal((await ann.error('tasks/get', { taskId: own.taskId })).code, -32602);
    await kill(server.child);
  });

test('a client that has gone before it could hear of its task leaves none that works', async () => {
  const server = await serveTasks(world);
  const sessions = Sessions.ofService('tasks', world.options);
  const before = new Set((await sessions.list()).map(({ id }) => id));
  const gone = new AbortController();
  process.kill(world.daemon.pid, 'SIGSTOP');
  const call = new Modern(server.url).call('watched', { gate: gate().file }, {}, { signal: gone.signal });
  await server.out.next(/^called$/);
  gone.abort();
  await assert.rejects(call);
  await server.out.next(/^gone$/);
  process.kill(world.daemon.pid, 'SIGCONT');
  let cancelled;
  while (!cancelled) {
    const made = (await sessions.list()).filter(({ id }) => !before.has(id));
    for (const { id } of made)
      [cancelled] = (await sessions.at(id).tasks()).filter((task) => task.status === 'cancelled');
  }
  await kill(server.child);
});

test('a message has as many bytes as the daemon takes, times are whole, and a time that is none is the error of the call', async () => {
  const server = await serveTasks(world);
  const client = new Modern(server.url);
  const message = 'ä'.repeat(3_000);
  const clipped = 'ä'.repeat(2_048);
  const times = { poll: 70.4, ttl: 99_999.6 };
  const created = await client.call('work', { gate: gate().file, message, ...times });
  assert.deepEqual(
    [created.resultType, created.statusMessage, created.pollIntervalMs, created.ttlMs],
    ['task', clipped, 70, 100_000],
  );
  const taskId = (await client.call('report', { gate: gate().file, message: `x${message}`, ...times }))
    .taskId;
  const told = await client.until(taskId, (task) => task.statusMessage);
  assert.deepEqual(
    [told.statusMessage, told.ttlMs, told.pollIntervalMs],
    [`x${clipped.slice(1)}`, 100_000, 70],
  );
  const { isError, content } = await client.call('work', { ttl: 0 });
  assert.equal(isError, true, 'no call that waits');
  assert.match(content[0].text, /ttl_ms/);
  await kill(server.child);
});

// Tasks of the extension whose server is killed, whose client is away, and whose daemon is: real processes.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { Sessions } from '../dist/index.js';
import { kill, World } from './lib/daemon.mjs';
import { EXTENSION, Modern, named, serveTasks } from './lib/modern.mjs';
import { clientSdk } from './sdks/sdk.mjs';

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

test('a task of a server that is killed while it works has failed within a second, "the outcome is unknown", as another server of the service tells', async (t) => {
  const [first, second] = [await serveTasks(world), await serveTasks(world)];
  const client = new Modern(first.url);
  const { taskId } = await client.call('slow');
  const other = client.with({ url: second.url });
  const { told, stop } = await other.listen({ taskIds: [taskId] });
  assert.equal((await told.next()).value.method, 'notifications/subscriptions/acknowledged');
  assert.equal((await told.next()).value.params.status, 'working');
  const killed = Date.now();
  first.child.kill('SIGKILL');
  const { params } = (await told.next()).value;
  stop();
  assert.deepEqual(
    [params.status, params.error.code, params.error.data],
    ['failed', -32603, { outcome: 'unknown' }],
  );
  assert.match(params.statusMessage, /outcome.*unknown/);
  const took = Date.parse(params.lastUpdatedAt) - killed;
  t.diagnostic(`failed after ${took} ms`);
  assert.ok(took < 1_000, `${took} ms`);
  const { _meta, resultType, ...shown } = await other.get(taskId);
  assert.deepEqual({ ...shown, _meta: params._meta }, params);
  await kill(second.child);
});

test('a client that was away gets the result later, from another server and another daemon', async () => {
  const [first, second] = [await serveTasks(world), await serveTasks(world)];
  const client = new Modern(first.url);
  const { file, open } = gate();
  const { taskId } = await client.call('add', { a: 1, b: 2, gate: file });
  open();
  await client.with({ url: second.url }).status(taskId, 'completed');
  await kill(first.child);
  await kill(second.child);
  await world.kill();
  await world.start();
  const third = await serveTasks(world);
  const { result } = await client.with({ url: third.url }).get(taskId);
  assert.equal(result.content[0].text, '3');
  await kill(third.child);
});

test('a task is there when its id is told: the server and the daemon are killed at once', async () => {
  const first = await serveTasks(world);
  const { taskId } = await new Modern(first.url).call('slow');
  await Promise.all([world.kill(), kill(first.child)]);
  await world.start();
  const second = await serveTasks(world);
  const { error } = await new Modern(second.url).status(taskId, 'failed');
  assert.deepEqual(error.data, { outcome: 'unknown' });
  await kill(second.child);
});

test('answers and a cancellation reach the server that works, through another one', async () => {
  const [first, second] = [await serveTasks(world), await serveTasks(world)];
  const client = new Modern(first.url);
  const other = client.with({ url: second.url });
  const { taskId } = await client.call('greet');
  for (const name of ['Ann', 'Bob']) {
    const { inputRequests } = await other.until(
      taskId,
      (task) => task.status === 'input_required' && (name === 'Ann' || task.statusMessage === 'asked'),
    );
    await other.update(taskId, { [Object.keys(inputRequests)[0]]: named(name) });
  }
  assert.equal((await other.status(taskId, 'completed')).result.content[0].text, 'Hello, Ann, Bob!');
  const slow = await client.call('slow');
  await other.cancel(slow.taskId);
  await first.out.next(/^aborted: the task is cancelled$/);
  assert.equal((await client.get(slow.taskId)).status, 'cancelled');
  await Promise.all([kill(first.child), kill(second.child)]);
});

test('while the daemon is away a call is answered without a task, a task is looked up in vain (-32603), and what ends is stored later', async () => {
  const server = await serveTasks(world, 0, 'reject', 3_000);
  const client = new Modern(server.url);
  const { file, open } = gate();
  const { taskId } = await client.call('add', { a: 2, b: 3, gate: file });
  await server.out.next(/^working add$/);
  await world.kill();
  const direct = await client.call('add', { a: 1, b: 2 });
  assert.deepEqual([direct.resultType, direct.content[0].text], ['complete', '3']);
  assert.equal((await client.error('tasks/get', { taskId })).code, -32603);
  assert.equal((await client.error('tools/call', { name: 'only', arguments: {} })).code, -32603);
  open();
  await server.out.next(/waits to be stored/);
  await world.start();
  assert.equal((await client.status(taskId, 'completed')).result.content[0].text, '5');
  assert.equal((await client.call('add', { a: 1, b: 2 })).resultType, 'task');
  const lines = server.out.all.filter((line) => line.startsWith('mcp-sessiond: no task can be created'));
  assert.equal(lines.length, 1, 'it is said once');
  assert.ok(!server.out.all.some((line) => line.includes(taskId.split('.')[1])));
  await kill(server.child);
});

test('a subscription is refused while the daemon is away, and taken afterwards', async () => {
  const server = await serveTasks(world, 0, 'reject', 500);
  const client = new Modern(server.url);
  const { taskId } = await client.call('slow');
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
    const { taskId } = await ann.call('add', { a: 1, b: 2, gate: file });
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
    assert.equal((await done).result.content[0].text, '3');
    assert.equal((await ann.error('subscriptions/listen', { notifications: { taskIds: 1 } })).code, -32602);
    const own = await nobody.call('add', { a: 2, b: 2 });
    assert.equal((await nobody.status(own.taskId, 'completed')).result.content[0].text, '4');
    assert.equal((await ann.error('tasks/get', { taskId: own.taskId })).code, -32602);
    await kill(server.child);
  });

test('a client that has gone before it could hear of its task leaves none that works', async () => {
  const server = await serveTasks(world);
  const sessions = Sessions.ofService('tasks', world.options);
  const before = new Set((await sessions.list()).map(({ id }) => id));
  const gone = new AbortController();
  process.kill(world.daemon.pid, 'SIGSTOP');
  const call = new Modern(server.url).call('slow', {}, {}, { signal: gone.signal });
  await server.out.next(/^called slow$/);
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

test('work that does not wait for its answers, or throws nothing, ends no server', async () => {
  const server = await serveTasks(world);
  const client = new Modern(server.url);
  const { taskId } = await client.call('impatient');
  await client.status(taskId, 'input_required');
  await client.cancel(taskId);
  const nothing = await client.call('fail', { how: 'nothing' });
  const { result } = await client.status(nothing.taskId, 'completed');
  assert.equal(result.isError, true);
  assert.equal((await client.get(taskId)).status, 'cancelled');
  await kill(server.child);
});

test('a result that is too large is an error that says so, and a client is not asked what it has not declared', async () => {
  const server = await serveTasks(world);
  const client = new Modern(server.url);
  const { taskId } = await client.call('large', { bytes: 1_100_000 });
  const { error } = await client.status(taskId, 'failed');
  assert.deepEqual([error.code, error.data], [-32603, { outcome: 'not_kept' }]);
  const sample = await client.status((await client.call('sample')).taskId, 'failed');
  assert.deepEqual(sample.error.data, { requiredCapabilities: { sampling: {} } });
  assert.equal(sample.error.code, -32021);
  const capabilities = { ...client.capabilities, sampling: {} };
  const able = client.with({ capabilities });
  const asked = await able.call('sample');
  const { inputRequests } = await able.status(asked.taskId, 'input_required');
  const response = { role: 'assistant', model: 'm', content: { type: 'text', text: 'an answer' } };
  await able.update(asked.taskId, { [Object.keys(inputRequests)[0]]: response });
  assert.equal((await able.status(asked.taskId, 'completed')).result.content[0].text, 'an answer');
  await kill(server.child);
});

test('servers MUST NOT treat this capability as enabling tasks under MCP 2025-11-25', async () => {
  const server = await serveTasks(world, 0, 'stateless');
  const { Client, Transport } = await clientSdk('2');
  const capabilities = { extensions: { [EXTENSION]: {} }, elicitation: {} };
  const client = new Client({ name: 'old', version: '1.0.0' }, { capabilities });
  await client.connect(new Transport(new URL(server.url)));
  const { content, taskId } = await client.callTool({ name: 'add', arguments: { a: 1, b: 2 } });
  assert.deepEqual([content[0].text, taskId], ['3', undefined]);
  const modern = new Modern(server.url);
  const created = await modern.call('slow');
  const post = (method) =>
    fetch(server.url, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        'mcp-protocol-version': '2025-11-25',
      },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params: { taskId: created.taskId } }),
    }).then((response) => response.text());
  for (const method of ['tasks/get', 'tasks/update', 'tasks/cancel'])
    assert.match(await post(method), /-32601/);
  assert.equal((await modern.get(created.taskId)).status, 'working');
  await client.close();
  await kill(server.child);
});

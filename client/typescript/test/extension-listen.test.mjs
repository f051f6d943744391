// Notifications of tasks (SEP-2663, "Task Status Notifications"), and the official client with tasks.
import assert from 'node:assert/strict';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { Sessions } from '../dist/index.js';
import { kill, World } from './lib/daemon.mjs';
import { EXTENSION, Modern, named, serveTasks } from './lib/modern.mjs';
import { all, messages } from './lib/server.mjs';
import { listening } from './sdks/local.mjs';
import { clientSdk } from './sdks/sdk.mjs';

let world, server, client;
before(async () => {
  world = await new World().start();
  server = await serveTasks(world);
  client = new Modern(server.url);
});
after(async () => {
  await kill(server.child);
  await world.end();
});

const root = () => server.url.slice(0, -'/mcp'.length);
/** A tool that is called so does not end by itself. */
const never = () => ({ gate: path.join(world.base, 'never') });
const ACK = 'notifications/subscriptions/acknowledged';

test('other notifications come on the same stream, but neither notifications/progress nor notifications/message, and the server may end it', async () => {
  const { taskId } = await client.call('work', never());
  const { next, told } = await client.listen({ taskIds: [taskId], toolsListChanged: true });
  assert.equal((await next()).method, ACK);
  assert.equal((await next()).params.status, 'working');
  await fetch(`${root()}/changed`);
  assert.equal((await next()).method, 'notifications/tools/list_changed');
  await client.cancel(taskId);
  assert.equal((await next()).params.status, 'cancelled');
  await fetch(`${root()}/changed`);
  assert.equal((await next()).method, 'notifications/tools/list_changed', 'it outlives the task');
  const other = await serveTasks(world);
  const there = client.with({ url: other.url });
  const slow = await there.call('work', never());
  const listening = await there.listen({ taskIds: [slow.taskId] });
  assert.equal((await listening.next()).method, ACK);
  assert.equal((await listening.next()).params.status, 'working');
  await fetch(`${other.url.slice(0, -'/mcp'.length)}/close`);
  assert.ok((await listening.next()).result);
  assert.equal((await listening.told.next()).done, true);
  await kill(other.child);
  await told.return();
});

test('what the SDK says passes through with any character that ends a line elsewhere', async () => {
  const uri = 'note:a\u2028b\u2029c\u0085d';
  // The server takes eight at one time.
  for (let n = 0; n < 9; n++) {
    const { taskId } = await client.call('work', never());
    const { next, stop } = await client.listen({ taskIds: [taskId], resourceSubscriptions: [uri] });
    const { method, params } = await next();
    assert.equal(method, ACK);
    assert.deepEqual(params.notifications, { taskIds: [taskId], resourceSubscriptions: [uri] });
    assert.equal((await next()).params.status, 'working');
    await fetch(`${root()}/updated?${encodeURIComponent(uri)}`);
    const { method: told, params: of } = await next();
    assert.deepEqual([told, of.uri], ['notifications/resources/updated', uri]);
    stop();
    await client.cancel(taskId);
  }
});

test('a client that does not read is told the newest of a task, once it does', async () => {
  const options = { service: 'slow-readers', ...world.options };
  const handler = listening(options);
  const session = await Sessions.ofService(options.service, world.options).create({ id: 's'.repeat(22) });
  const { task } = await session.createTask();
  const listen = async () => {
    const notifications = { taskIds: [`${session.id}.${task.id}`] };
    const request = new Modern('http://localhost/mcp').made('subscriptions/listen', { notifications });
    const told = messages(await handler.fetch(request));
    assert.equal((await told.next()).value.method, ACK);
    return told;
  };
  const [reading, stalled] = [await listen(), await listen()];
  for (let n = 1; n <= 20; n++) {
    await task.update({ message: `step ${n}` });
    while ((await reading.next()).value.params.statusMessage !== `step ${n}`);
  }
  await task.complete({ content: [] });
  await all(reading);
  const told = (await all(stalled)).filter(({ method }) => method === 'notifications/tasks');
  assert.ok(told.length <= 3, `${told.length} notifications were piled up`);
  assert.equal(told.at(-1).params.status, 'completed');
  await handler.close();
});

test('subscriptions whose client has gone leave room for others', async () => {
  const { taskId } = await client.call('work', never());
  // The server takes eight at one time.
  for (let n = 0; n < 24; n++) {
    const { next, stop } = await client.listen({ taskIds: [taskId], toolsListChanged: true });
    const { method, error } = await next();
    stop();
    if (error) n--;
    else assert.equal(method, ACK);
  }
});

test('one subscription hears of 64 tasks, and all of a process of 400', async () => {
  const made = await Promise.all(Array.from({ length: 65 }, () => client.call('work', never())));
  const taskIds = made.map(({ taskId }) => taskId);
  /** Listens, as soon as those that have stopped are gone. */
  const accepted = async () => {
    for (;;) {
      const { next, stop } = await client.listen({ taskIds });
      const message = await next();
      if (message?.method === ACK) return { message, stop };
      stop();
    }
  };
  const open = [];
  for (let n = 0; n < 6; n++) {
    open.push(await accepted());
    assert.deepEqual(open.at(-1).message.params.notifications.taskIds, taskIds.slice(0, 64));
  }
  const refused = await client.error('subscriptions/listen', { notifications: { taskIds } });
  assert.deepEqual([refused.status, refused.code], [503, -32603]);
  for (const { stop } of open) stop();
  (await accepted()).stop();
});

/** A schema that takes everything. */
const any = { '~standard': { version: 1, vendor: 'test', validate: (value) => ({ value }) } };

/** What the official client does with a task. `created` gives the id that it was told. */
async function official(sdk, created) {
  const heard = [];
  let ended;
  const end = new Promise((resolve) => (ended = resolve));
  sdk.setNotificationHandler('notifications/tasks', { params: any }, (task) => {
    heard.push(task.status);
    if (task.status === 'completed') ended(task);
  });
  // It takes no CreateTaskResult as the answer to a call, and says so.
  await assert.rejects(sdk.callTool({ name: 'greet', arguments: {} }), { code: 'UNSUPPORTED_RESULT_TYPE' });
  const taskId = await created;
  const ask = (method, more) => sdk.request({ method, params: { taskId, ...more } }, any);
  let asked = 0;
  for (let task; task?.status !== 'completed'; ) {
    task = await ask('tasks/get');
    const [key] = Object.keys(task.inputRequests ?? {});
    if (key) await ask('tasks/update', { inputResponses: { [key]: named(`${++asked}`) } });
    if (task.status === 'completed') assert.equal(task.result.content[0].text, 'Hello, 1 in 2!');
  }
  await ask('tasks/cancel');
  await assert.rejects(sdk.request({ method: 'tasks/get', params: { taskId: 'none' } }, any), {
    code: -32602,
  });
  return { taskId, end, heard };
}

const options = {
  capabilities: { extensions: { [EXTENSION]: {} }, elicitation: {} },
  versionNegotiation: { mode: { pin: '2026-07-28' } },
};

test('the official client over HTTP gets, answers and cancels tasks, and hears of them', async () => {
  const { Client, Transport } = await clientSdk('2');
  let told;
  const created = new Promise((resolve) => (told = resolve));
  const spying = async (...request) => {
    const response = await fetch(...request);
    if (response.headers.get('content-type')?.startsWith('application/json')) {
      const { result } = await response.clone().json();
      if (result?.resultType === 'task') told(result.taskId);
    }
    return response;
  };
  const sdk = new Client({ name: 'official', version: '1.0.0' }, options);
  await sdk.connect(new Transport(new URL(server.url), { fetch: spying }));
  const { taskId, end, heard } = await official(sdk, created);
  const subscription = await sdk.listen({ taskIds: [taskId] });
  assert.equal((await end).result.content[0].text, 'Hello, 1 in 2!');
  assert.deepEqual(heard, ['completed']);
  await subscription.close();
  await sdk.close();
});

test('the official client over stdio gets, answers and cancels tasks', async () => {
  const { Client } = await clientSdk('2');
  const { StdioClientTransport } = await clientSdk('2-stdio');
  const script = path.join(import.meta.dirname, 'sdks/tasks.mjs');
  const transport = new StdioClientTransport({
    command: process.execPath,
    args: [script, 'stdio'],
    env: world.env,
    stderr: 'ignore',
  });
  const sdk = new Client({ name: 'official', version: '1.0.0' }, options);
  await sdk.connect(transport);
  const { onmessage } = transport;
  const created = new Promise((resolve) => {
    transport.onmessage = (message, ...extra) => {
      if (message.result?.resultType === 'task') resolve(message.result.taskId);
      onmessage(message, ...extra);
    };
  });
  await official(sdk, created);
  await sdk.close();
});

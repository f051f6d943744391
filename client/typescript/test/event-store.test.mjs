// The event store of a session, as the SDK's transports use it.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { SessionEventStore, Sessions } from '../dist/index.js';
import http from 'node:http';
import { World } from './lib/daemon.mjs';
import { messages, Wire } from './lib/server.mjs';
import { serverSdk } from './sdks/sdk.mjs';

let world;
before(async () => {
  world = await new World().start();
});
after(() => world.end());

const create = () => Sessions.ofService('events', world.options).create();
const note = (n) => ({ jsonrpc: '2.0', method: 'notifications/message', params: { data: n } });

async function replayed(store, after) {
  const said = [];
  const stream = await store.replayEventsAfter(after, {
    send: async (id, message) => void said.push([id, message]),
  });
  return { stream, said };
}

test('a stream is replayed by another store of the session, and nothing else is', async () => {
  const session = await create();
  const store = new SessionEventStore(session);
  const primed = await store.storeEvent('a', {});
  await store.storeEvent('b', note(0));
  const first = await store.storeEvent('a', note(1));
  await store.storeEvent('_GET_stream', note(2));
  const answer = { jsonrpc: '2.0', id: 1, result: {} };
  const last = await store.storeEvent('a', answer);
  const next = new SessionEventStore(await Sessions.ofService('events', world.options).open(session.id));
  assert.notEqual(await next.getStreamIdForEventId(first), undefined);
  assert.deepEqual(await replayed(next, primed), {
    stream: 'a',
    said: [
      [first, note(1)],
      [last, answer],
    ],
  });
  assert.equal(await next.getStreamIdForEventId('made-up'), undefined);
  await assert.rejects(replayed(next, 'made-up'), { code: 'unknown_cursor' });
});

test('messages that are not waited for are kept in order', async () => {
  const store = new SessionEventStore(await create());
  const first = await store.storeEvent('a', {});
  const ids = await Promise.all(Array.from({ length: 1000 }, (_, n) => store.storeEvent('a', note(n))));
  const { said } = await replayed(store, first);
  assert.deepEqual(
    said.map(([, { params }]) => params.data),
    ids.map((_, n) => n),
  );
  assert.deepEqual(
    said.map(([id]) => id),
    ids,
  );
});

test('there may be many calls, also after a process that has left its streams open', async () => {
  const session = await create();
  const left = new SessionEventStore(session);
  await Promise.all(Array.from({ length: 200 }, (_, n) => left.storeEvent(`left-${n}`, note(n))));
  const log = [];
  const store = new SessionEventStore(session, { log: (_, line) => log.push(line) });
  for (let n = 0; n < 100; n++) {
    assert.notEqual(await store.storeEvent(`call-${n}`, { jsonrpc: '2.0', id: n, result: {} }), '');
  }
  assert.deepEqual(log, []);
});

test('what can not be kept is told once, and nothing is thrown', async () => {
  const own = await new World().start();
  const session = await Sessions.ofService('events', { ...own.options, timeoutMs: 300 }).create();
  const log = [];
  const store = new SessionEventStore(session, { log: (level, line) => log.push([level, line]) });
  assert.notEqual(await store.storeEvent('a', note(1)), '');
  await own.kill();
  assert.equal(await store.storeEvent('a', note(2)), '');
  assert.equal(await store.storeEvent('a', note(3)), '');
  assert.equal(await store.getStreamIdForEventId('x'), undefined);
  assert.equal(log.length, 1);
  assert.match(log[0][1], /messages of session .* are not kept/);
  assert.ok(!log[0][1].includes(session.id), 'whoever knows the id may have the session');
  await own.start();
  assert.notEqual(await store.storeEvent('a', note(4)), '');
  assert.equal(log.length, 1);
  await own.end();
});

test('a message that is too large costs no other event, and a full session makes room', async () => {
  const own = await new World({ 'limits.message_bytes': 65_536, 'limits.owner_bytes': 8_388_608 }).start();
  const session = await Sessions.ofService('full', own.options).create();
  const store = new SessionEventStore(session, { log: () => undefined });
  const large = (bytes) => ({ jsonrpc: '2.0', id: 1, result: { text: 'x'.repeat(bytes) } });
  await Promise.all(Array.from({ length: 400 }, (_, n) => store.storeEvent('a', note(n))));
  assert.equal(await store.storeEvent('a', large(70_000)), '');
  assert.equal((await session.view()).events, 400);
  // More than there is memory for, 256 of them, too.
  for (let n = 0; n < 300; n++) assert.notEqual(await store.storeEvent('b', large(60_000)), '');
  const { events } = await session.view();
  assert.ok(events >= 16 && events < 256, String(events));
  await own.end();
});

/** A server whose transport keeps its streams by a store with these options. Its one tool answers when it is told to. */
async function serveWith(version, options, t) {
  const { Server, Transport, onCall } = await serverSdk(version);
  const session = await create();
  const server = new Server({ name: 'stale', version: '1' }, { capabilities: { tools: {}, logging: {} } });
  let answer;
  onCall(server, async (_, { notify }) => {
    await notify(note('begun'));
    await new Promise((resolve) => (answer = resolve));
    return { content: [{ type: 'text', text: 'done' }] };
  });
  const eventStore = new SessionEventStore(session, options);
  const transport = new Transport({ sessionIdGenerator: () => session.id, eventStore });
  await server.connect(transport);
  const listener = http.createServer((request, response) => void transport.handleRequest(request, response));
  await new Promise((ready) => listener.listen(0, '127.0.0.1', ready));
  t.after(() => {
    listener.closeAllConnections();
    listener.close();
  });
  const wire = await new Wire(`http://127.0.0.1:${listener.address().port}/mcp`).begin();
  return { server, wire, answer: () => answer() };
}

for (const version of ['1.32', '2'])
  test(
    `a client that comes back gets past a stream that SDK ${version} takes for read`,
    { timeout: 60_000 },
    async (t) => {
      const { server, wire, answer } = await serveWith(version, {}, t);
      // The standalone stream. None of these connections is closed by the client.
      const stale = messages(await wire.get());
      await server.notification(note(1));
      const { event } = (await stale.next()).value;
      const response = await wire.get(event);
      assert.equal(response.status, 200);
      await server.notification(note(2));
      const resumed = messages(response);
      assert.equal((await resumed.next()).value.params.data, 2);
      assert.equal((await stale.next()).done, true, 'the previous connection ends');

      // That of a call.
      const call = messages(await wire.call('wait'));
      const begun = (await call.next()).value;
      assert.equal(begun.params.data, 'begun');
      const again = messages(await wire.get(begun.event));
      answer();
      assert.equal((await again.next()).value.result.content[0].text, 'done');
      assert.equal((await wire.get('made-up')).status, 400);
    },
  );

test(
  'with SDK 1.29 a client that comes back can be refused until the previous connection has ended',
  { timeout: 60_000 },
  async (t) => {
    const { wire, answer } = await serveWith('1.29', { takesOver: false }, t);
    const gone = new AbortController();
    const call = messages(await wire.call('wait', {}, { signal: gone.signal }));
    const { event } = (await call.next()).value;
    assert.equal((await wire.get(event)).status, 409);
    gone.abort();
    let again;
    do again = await wire.get(event);
    while (again.status === 409);
    answer();
    const said = await messages(again).next();
    assert.equal(said.value.result.content[0].text, 'done');
  },
);

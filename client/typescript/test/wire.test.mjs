// What `durable` does with what is in a session. What a request and its response are is in tests/conformance/http.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { Sessions } from '../dist/index.js';
import { kill, World } from './lib/daemon.mjs';
import { all, events, messages, refused, serveIn, Wire } from './lib/server.mjs';

let world, server;
before(async () => {
  world = await new World().start();
  server = await serveIn(world, '1.32', 0, 'raw');
});
after(async () => {
  await kill(server.child);
  await world.end();
});

const begun = (headers = {}) => Object.assign(new Wire(server.url), { headers }).begin();
const gate = (name) => path.join(world.base, `gate-${name}`);
/** The first `count` of what a generator gives. */
async function take(generator, count) {
  const found = [];
  while (found.length < count) found.push((await generator.next()).value);
  return found;
}

test('a refusal of the SDK leaves no open stream', async () => {
  const client = await begun();
  const headers = { accept: 'application/json' };
  assert.equal((await client.post('tools/list', {}, { headers })).status, 406);
  const session = await Sessions.ofService('test', world.options).open(client.session);
  const open = async () =>
    (await session.streams()).filter(({ id, closed }) => id !== '_GET_stream' && !closed);
  // It is closed behind the answer.
  const until = Date.now() + 10_000;
  while ((await open()).length > 0) assert.ok(Date.now() < until, 'a stream is open');
});

test('the handshake is stored as every adapter stores it', async () => {
  const client = await begun();
  const session = await Sessions.ofService('test', world.options).open(client.session);
  const { metadata, status } = await session.view();
  assert.deepEqual(status, { is: 'ready' });
  assert.equal(metadata.version, '2025-11-25');
  assert.equal(metadata.initialize.clientInfo.name, 'wire');
  assert.equal(metadata.result.serverInfo.name, 'durable');
});

test('of an answer and of the will that came after it, a client gets the answer', async () => {
  const client = await begun();
  const session = await Sessions.ofService('test', world.options).open(client.session);
  const stream = await session.openStream('post-killed', { openedBy: 77 });
  const primed = await stream.prime();
  const message = { jsonrpc: '2.0', method: 'notifications/message', params: { level: 'info', data: 1 } };
  const answer = { jsonrpc: '2.0', id: 77, result: {} };
  const [told, answered] = await stream.appendAll([message, answer]);
  await stream.append({ jsonrpc: '2.0', id: 77, error: { code: -32000, message: 'unknown' } });
  await stream.close();
  const from = async (event) =>
    (await all(messages(await client.get(event.id)))).map(({ id, result }) => [id, result]);
  assert.deepEqual(await from(primed), [
    [undefined, undefined],
    [77, {}],
  ]);
  assert.deepEqual(await from(told), [[77, {}]]);
  assert.deepEqual(await from(answered), []);
});

test('an event that is no message, which another client of the daemon has stored, keeps nobody from the answer', async () => {
  const client = await begun();
  const session = await Sessions.ofService('test', world.options).open(client.session);
  const stream = await session.openStream('post-odd', { openedBy: 78 });
  const odd = await stream.appendTexts(['null', '7', '"{"']);
  await stream.append({ jsonrpc: '2.0', id: 78, result: {} }, { close: true });
  for (const [at, { id }] of odd.entries()) {
    const response = await client.get(id);
    assert.equal(response.status, 200);
    const said = await all(events(response));
    assert.deepEqual(
      said.filter(({ data }) => data).map(({ data }) => JSON.parse(data)?.id),
      [...Array(odd.length - 1 - at).fill(undefined), 78],
    );
  }
});

test('a message goes to one reader, the last that has come', async () => {
  const client = await begun();
  const former = await client.get();
  const later = await client.get();
  assert.deepEqual(await all(messages(former)), [], 'it has ended');
  await client.text('notify', { n: 2 });
  const two = await take(messages(later), 2);
  assert.deepEqual(
    two.map(({ params }) => params.data),
    [1, 2],
  );
});

test('messages of no call wait, and who comes without an id gets what was not sent', async () => {
  const client = await begun();
  await client.text('notify', { n: 2 });
  const cut = new AbortController();
  const first = await take(messages(await client.get(undefined, { signal: cut.signal })), 2);
  assert.deepEqual(
    first.map(({ params }) => params.data),
    [1, 2],
  );
  // It is noted after it was sent.
  const session = await Sessions.ofService('test', world.options).open(client.session);
  while ((await session.get('mcp.standalone')) !== first[1].event);
  cut.abort();
  await client.text('notify', { n: 1 });
  const [third] = await take(messages(await client.get()), 1);
  assert.equal(third.params.data, 1);
  const [again] = await take(messages(await client.get(first[1].event)), 1);
  assert.equal(again.event, third.event);
});

test('a client is told how much was deleted before it came', async () => {
  const client = await begun();
  await client.text('notify', { n: 5 });
  const session = await Sessions.ofService('test', world.options).open(client.session);
  await session.prune(2);
  const [gap, fifth] = await take(messages(await client.get()), 2);
  assert.equal(gap.params.level, 'warning');
  assert.match(gap.params.data, /^4 messages of this stream were deleted/);
  assert.equal(fifth.params.data, 5);
});

test('a session whose server was closed gets another one, and its open calls are answered', async () => {
  const client = await begun();
  assert.equal(await client.text('visit'), '1');
  const [primed] = await all(events(await client.call('close')));
  const [lost] = await all(messages(await client.get(primed.id)));
  assert.deepEqual([lost.id, lost.error.data], [client.id, { outcome: 'unknown' }]);
  assert.equal(await client.text('visit'), '2');
});

test('two clients with fifty calls at once: each tool gets its own session', async () => {
  const clients = await Promise.all([begun(), begun()]);
  const ids = await Promise.all(
    clients.flatMap((client) =>
      Array.from({ length: 50 }, async () => [client.session, await client.text('session')]),
    ),
  );
  for (const [own, told] of ids) assert.equal(told, own);
});

test('two processes behind a balancer that alternates serve the same sessions', async () => {
  const other = await serveIn(world, '1.32', 0, 'raw');
  const client = await begun();
  const urls = [other.url, server.url];
  for (let visit = 1; visit <= 6; visit++) {
    client.url = urls[visit % 2];
    assert.equal(await client.text('visit'), String(visit));
  }
  client.url = other.url;
  const cut = new AbortController();
  const [first] = await take(
    messages(await client.call('steps', { n: 3, gate: gate('two') }, { signal: cut.signal })),
    1,
  );
  cut.abort();
  client.url = server.url;
  const rest = messages(await client.get(first.event));
  writeFileSync(gate('two'), '');
  assert.equal((await all(rest)).at(-1).result.content[0].text, '3');
  const gone = await client
    .call('steps', { n: 3, gate: gate('gone') })
    .then((response) => messages(response));
  await take(gone, 1);
  client.url = other.url;
  assert.equal((await client.request('DELETE')).status, 200);
  client.url = server.url;
  assert.deepEqual(await refused(client.post('tools/list')), [404, -32001]);
  await kill(other.child);
});

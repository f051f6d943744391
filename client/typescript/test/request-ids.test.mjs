// The names by which a server knows the requests of its client.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { RequestIds } from '../dist/durable/request-ids.js';
import { Sessions } from '../dist/index.js';
import { between } from './lib/between.mjs';
import { kill, World } from './lib/daemon.mjs';
import { all, messages, serveIn, Wire } from './lib/server.mjs';

let world;
before(async () => {
  world = await new World().start();
});
after(() => world.end());

const request = (id) => ({ jsonrpc: '2.0', id, method: 'tools/call', params: {} });

test('a request keeps its id, unless that is taken', () => {
  const names = new RequestIds();
  const first = request(1);
  assert.equal(names.take(first), first);
  const again = names.take(request(1));
  assert.notEqual(again.id, 1);
  // A client may have used such a name itself.
  const guessed = names.take(request(again.id));
  assert.notEqual(guessed.id, again.id);
  assert.equal(names.forClient({ jsonrpc: '2.0', id: guessed.id, result: {} }).id, again.id);
  assert.equal(names.forClient({ jsonrpc: '2.0', id: again.id, result: {} }).id, 1);
  names.answered(1);
  assert.notEqual(names.take(first).id, 1, 'the answer is on its way');
  names.done(1);
  assert.equal(names.take(first), first, 'it is free again');
});

test('a cancellation that may mean one of several requests means none', () => {
  const names = new RequestIds();
  const cancel = { method: 'notifications/cancelled', params: { requestId: 1 } };
  assert.equal(names.cancelledBy(cancel), undefined);
  names.take(request(1));
  const again = names.take(request(1));
  assert.equal(names.cancelledBy(cancel), undefined);
  assert.ok(![1, again.id].includes(names.cancellingNone(cancel).params.requestId));
  names.answered(1);
  assert.equal(names.cancelledBy(cancel), again.id, 'the first one is answered');
  names.cancel(again.id);
  assert.equal(names.cancelledBy(cancel), undefined);
  const ofTask = { method: 'notifications/cancelled', params: {} };
  assert.equal(names.cancellingNone(ofTask), ofTask);
});

test('after very many requests that were cancelled every later one has a name of its own', () => {
  const names = new RequestIds();
  for (let id = 0; id <= 1_000; id++) names.cancel(names.take(request(id)).id);
  const [one, two] = [names.take(request(7)), names.take(request(8))];
  for (const { id } of [one, two]) assert.match(id, /^mcp-sessiond-/);
  assert.notEqual(one.id, two.id);
});

const gate = (name) => path.join(world.base, `gate-${name}`);

for (const version of ['1.13', '1.24', '1.32', '2'])
  test(`SDK ${version}: each call gets its own answer where a client uses the id of one again that still runs, or was cancelled`, async () => {
    const own = await serveIn(world, version, 0, 'raw');
    const client = await new Wire(own.url, version === '1.13' ? '2025-06-18' : '2025-11-25').begin();
    const gates = ['first', 'second', 'third', 'fourth'].map((name) => gate(`${version}-${name}`));
    /** Calls, with the id of the call before, and waits for the first step. */
    const again = async (n, file) => {
      client.id = 41;
      const said = messages(await client.call('steps', { n, gate: file }));
      const { value: first } = await said.next();
      return { said, first };
    };
    const told = (all) =>
      all.map(({ id, params, result }) =>
        params ? [params.progressToken, params.progress] : [id, result.content[0].text],
      );
    const one = await again(2, gates[0]);
    const two = await again(3, gates[1]);
    writeFileSync(gates[1], '');
    const ofTwo = [
      ['p', 2],
      ['p', 3],
      [42, '3'],
    ];
    assert.deepEqual(told(await all(two.said)), ofTwo);
    writeFileSync(gates[0], '');
    const ofOne = [
      ['p', 2],
      [42, '2'],
    ];
    assert.deepEqual(told(await all(one.said)), ofOne);
    assert.deepEqual(told(await all(messages(await client.get(one.first.event)))), ofOne);
    assert.deepEqual(told(await all(messages(await client.get(two.first.event)))), ofTwo);
    // One that was cancelled, and goes on.
    await again(4, gates[2]);
    await client.notify('notifications/cancelled', { requestId: 42 });
    const last = await again(3, gates[3]);
    writeFileSync(gates[2], '');
    await own.out.next(new RegExp(`^through .*third$`));
    writeFileSync(gates[3], '');
    assert.deepEqual(told(await all(last.said)), ofTwo);
    // One that is answered is not cancelled by what comes too late.
    await client.notify('notifications/cancelled', { requestId: 42 });
    client.id = 41;
    assert.deepEqual(told(await all(messages(await client.call('steps', { n: 1 })))), [
      ['p', 1],
      [42, '1'],
    ]);
    // Neither is cancelled where both may be meant, as where two pages share a session.
    const [fifth, sixth] = ['fifth', 'sixth'].map((name) => gate(`${version}-${name}`));
    const stays = await again(2, fifth);
    const goes = await again(3, sixth);
    await client.notify('notifications/cancelled', { requestId: 42 });
    writeFileSync(fifth, '');
    assert.deepEqual(told(await all(stays.said)), ofOne);
    // One that is the only one, by whichever name, is.
    await client.notify('notifications/cancelled', { requestId: 42 });
    await own.out.next(/^aborted .*sixth$/);
    const session = await Sessions.ofService('test', world.options).open(client.session);
    for (let closed = false; !closed; )
      ({
        stream: { closed },
      } = await session.findEvent(goes.first.event));
    await kill(own.child);
  });

for (const version of ['1.13', '1.24', '1.32', '2'])
  test(`SDK ${version}: a call is not mixed up with the one before, whose answer is on its way and has the same id`, async (t) => {
    let held;
    let hold = false;
    let release;
    const isHeld = new Promise((resolve) => (held = resolve));
    const until = new Promise((resolve) => (release = resolve));
    const line = await between(world, (method, { close } = {}) => {
      if (!hold || method !== 'append' || !close) return undefined;
      hold = false;
      held();
      return { until };
    });
    t.after(() => line.close());
    const env = { ...world.env, MCP_SESSIOND_DIR: line.options.directory };
    const own = await serveIn({ env }, version, 0, 'raw');
    t.after(() => kill(own.child));
    const client = await new Wire(own.url, version === '1.13' ? '2025-06-18' : '2025-11-25').begin();
    hold = true;
    client.id = 41;
    const first = client.call('steps', { n: 0 });
    await isHeld;
    client.id = 41;
    const file = gate(`${version}-between`);
    const second = messages(await client.call('steps', { n: 1, gate: file }));
    assert.equal((await second.next()).value.params.progress, 1);
    release();
    assert.deepEqual(
      (await all(messages(await first))).map(({ id, result }) => [id, result.content[0].text]),
      [[42, '0']],
    );
    await client.notify('notifications/cancelled', { requestId: 42 });
    await own.out.next(/^aborted .*between$/);
  });

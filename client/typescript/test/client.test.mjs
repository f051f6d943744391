// Sessions of a service, on a real daemon.
import assert from 'node:assert/strict';
import { chmodSync, mkdirSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { inspect } from 'node:util';
import { credential, SessiondError, Sessions } from '../dist/index.js';
import { between } from './lib/between.mjs';
import { beforeLinux65, binary, World } from './lib/daemon.mjs';

let world;
before(async () => {
  world = await new World().start();
});
after(() => world.end());

const ofService = (options) => Sessions.ofService('shop', { ...world.options, ...options });
/** The code with which a promise rejects. */
async function code(promise) {
  const error = await promise.then(
    () => assert.fail('it did not reject'),
    (error) => error,
  );
  assert.ok(error instanceof SessiondError, String(error));
  return error.code;
}

test(
  'who connects says who it is where the kernel does not',
  { skip: process.platform !== 'linux' },
  async () => {
    const older = await new World().start(beforeLinux65);
    try {
      const sessions = Sessions.ofService('shop', older.options);
      const session = await sessions.create();
      await session.set('cart', ['apples']);
      assert.deepEqual(await (await sessions.open(session.id)).get('cart'), ['apples']);
    } finally {
      await older.end();
    }
  },
);

test('a session is made, found, listed, changed and ended', async () => {
  const sessions = ofService();
  const session = await sessions.create({ metadata: { client: 'x' }, lifetimes: { idleMs: 60_000 } });
  const absolute = await (await sessions.create({ lifetimes: { idleMs: 0, absoluteMs: 90_000 } })).view();
  assert.equal(absolute.expiresMs - absolute.createdMs, 90_000);
  const view = await session.view();
  assert.equal(view.id, session.id);
  assert.equal(view.service, 'shop');
  assert.deepEqual(view.metadata, { client: 'x' });
  assert.deepEqual(view.status, { is: 'initializing' });
  assert.equal(view.lastNumber, 0n);
  assert.ok(view.expiresMs > view.createdMs);
  const parts = [
    { part: 'db', is: 'failed', sinceMs: 1_700_000_000_000, code: 'away', message: 'nobody answers' },
    { part: 'mail', is: 'not_tried' },
  ];
  for (const is of ['failed', 'ready']) {
    const status = { is, parts };
    assert.deepEqual((await session.update({ status })).status, status);
  }
  await session.touch();
  const again = await sessions.open(session.id);
  assert.equal(again.id, session.id);
  assert.ok((await sessions.list()).some(({ id }) => id === session.id));
  assert.equal(await code(sessions.create({ id: session.id })), 'already_exists');
  await session.terminate();
  assert.equal(await code(sessions.open(session.id)), 'session_terminated');
  assert.equal(await code(sessions.open('nobody')), 'unknown_session');
});

test('state has versions, and a write can depend on one', async () => {
  const session = await ofService().create();
  assert.equal(await session.get('cart'), undefined);
  const first = await session.set('cart', ['apples', { of: 'Ä' }]);
  assert.deepEqual(await session.get('cart'), ['apples', { of: 'Ä' }]);
  assert.deepEqual(await session.entry('cart'), {
    key: 'cart',
    version: first,
    value: ['apples', { of: 'Ä' }],
  });
  const second = await session.compareAndSet('cart', first, null);
  assert.ok(second > first);
  assert.equal(await session.get('cart'), null);
  const conflict = await session.compareAndSet('cart', first, 1).catch((error) => error);
  assert.equal(conflict.code, 'version_conflict');
  assert.equal(conflict.httpStatus, 409);
  assert.equal(BigInt(conflict.fields.current), second);
  await session.write([
    { key: 'a', value: 1 },
    { key: 'b', value: 2, expected: 0n },
  ]);
  assert.deepEqual(
    (await session.keys()).map(({ key }) => key),
    ['a', 'b', 'cart'],
  );
  await session.remove('cart');
  assert.deepEqual(await session.entries(['cart', 'a']), [
    { key: 'cart', version: 0n },
    { key: 'a', version: (await session.entry('a')).version, value: 1 },
  ]);
  assert.equal(await code(session.set('a', undefined)), 'invalid_argument');
  assert.equal(await code(session.set('a', 1n)), 'invalid_argument');
  await session.reset();
  assert.deepEqual(await session.keys(), []);
});

test('a conditional write whose answer is lost is made once, and is uncertain where another came first', async (t) => {
  const session = await ofService().create();
  let fault;
  const line = await between(world, async (method) => {
    if (method !== 'write_state' || !fault) return undefined;
    const [what, meanwhile] = fault;
    fault = undefined;
    await meanwhile?.();
    return what;
  });
  t.after(() => line.close());
  const own = await ofService(line.options).open(session.id);
  fault = ['lose'];
  const first = await own.compareAndSet('cart', 0n, 1);
  assert.equal(fault, undefined);
  assert.deepEqual(await session.entry('cart'), { key: 'cart', version: first, value: 1 });
  fault = ['break', () => session.set('cart', 2)];
  assert.equal(await code(own.compareAndSet('cart', first, 3)), 'uncertain');
  assert.equal(await session.get('cart'), 2);
});

test('what a stream has said is replayed, waited for, and has an end', async () => {
  const session = await ofService().create();
  const stream = await session.openStream('answer', { openedBy: 7 });
  const primed = await stream.prime();
  assert.equal(primed.position, 1n);
  const waiting = session.wait([{ event: primed.id }], 20_000);
  const [first, second] = await stream.appendAll([{ n: 1 }, { n: 2 }]);
  const said = await waiting;
  assert.deepEqual(
    said.events.map(({ json }) => JSON.parse(json)),
    [{ n: 1 }, { n: 2 }],
  );
  assert.deepEqual(
    said.events.map(({ id }) => id),
    [first.id, second.id],
  );
  assert.equal((await session.findEvent(first.id)).ended, false);
  await stream.close();
  assert.deepEqual((await session.replay(said.next[0])).ended, ['answer']);
  assert.equal(await code(stream.append({})), 'stream_closed');
  const found = await session.findEvent(second.id);
  assert.equal(found.ended, true);
  assert.deepEqual([found.stream.id, found.stream.openedBy, found.stream.closed], ['answer', 7, true]);
  assert.equal(
    (await session.replayAll({ stream: 'answer' })).events.length,
    2,
    'priming events are not replayed',
  );
  assert.equal(await code(session.replay({ event: 'made-up' })), 'unknown_cursor');
  const alone = await session.standalone.append({ method: 'm' });
  assert.equal(alone.stream, '_GET_stream');
  assert.equal((await session.replay({ number: second.number })).events[0].id, alone.id);
  assert.deepEqual(
    (await session.streams()).map(({ id }) => id),
    ['_GET_stream', 'answer'],
  );
});

test('a message for an orphan goes to the standalone stream until its reader is back', async () => {
  const session = await ofService().create();
  const stream = await session.openStream('s');
  await stream.orphan();
  assert.equal((await stream.append({ method: 'm' })).stream, '_GET_stream');
  await stream.unorphan();
  assert.equal((await stream.append({ method: 'm' })).stream, 's');
});

test('what was pruned is a gap', async () => {
  const session = await ofService().create();
  for (let n = 1; n <= 5; n++) await session.standalone.append({ n });
  assert.equal(await session.prune(2), 3n);
  const { gaps, events } = await session.replay({ stream: '_GET_stream' });
  assert.deepEqual(gaps, [{ stream: '_GET_stream', first: 1n, last: 3n }]);
  assert.equal(events.length, 2);
});

test('a session that is bound takes part in calls of its caller alone', async () => {
  const caller = credential('key');
  const session = await ofService().create({ binding: { caller } });
  assert.equal(await code(ofService().open(session.id)), 'binding_mismatch');
  assert.equal(await code(session.onBehalfOf(credential('other')).view()), 'binding_mismatch');
  const mine = await ofService().onBehalfOf(caller).open(session.id);
  await mine.rotateCredential('new');
  await mine.touch();
  await ofService().onBehalfOf(credential('new')).open(session.id);
});

test('who prints a session sees its id, and no caller', async () => {
  const caller = credential('a secret');
  const session = await ofService().create({ binding: { caller } });
  assert.equal(inspect(session, { depth: 9, showHidden: true }).includes(caller.hash), false);
  assert.ok(inspect(session).includes(session.id));
});

test('a handle leads to its session', async () => {
  const session = await ofService().create();
  const { handle, expiresMs } = await session.mintHandle(60_000);
  assert.ok(expiresMs > Date.now());
  assert.equal((await ofService().openHandle(handle)).id, session.id);
  assert.equal(await code(ofService().openHandle('x'.repeat(43))), 'unknown_handle');
});

test('a client that is attached counts until it is detached', async () => {
  const session = await ofService().create();
  const attachment = await session.attach();
  assert.equal((await session.view()).attached, 1);
  await attachment.detach();
  assert.equal((await session.view()).attached, 0);
});

test('many calls are under way at once on one connection, and each gets its own answer', async () => {
  const session = await ofService().create();
  const keys = Array.from({ length: 200 }, (_, at) => `key-${at}`);
  await Promise.all(keys.map((key) => session.set(key, key)));
  assert.deepEqual(await Promise.all(keys.map((key) => session.get(key))), keys);
});

test('a value of two megabytes comes back whole', async () => {
  const session = await ofService().create();
  // The limit of a value is lower, so it goes as messages.
  const text = 'ä'.repeat(1_000_000);
  await session.standalone.append({ text }).then(
    async () =>
      assert.equal(JSON.parse((await session.replay({ stream: '_GET_stream' })).events[0].json).text, text),
    (error) => assert.equal(error.code, 'quota_exceeded'),
  );
});

test('a wait that is aborted ends at once, with the same place', { timeout: 15_000 }, async () => {
  const session = await ofService().create();
  const abort = new AbortController();
  const waiting = session.wait([{ number: 0n }], 24_000, abort.signal);
  await session.touch();
  abort.abort();
  assert.deepEqual((await waiting).next, [{ number: 0n }]);
  assert.deepEqual((await session.wait([{ number: 0n }], 24_000, abort.signal)).events, []);
});

test('a directory that is not ours alone is not spoken to', async () => {
  const { base } = world;
  const at = (directory) => Sessions.ofService('shop', { directory, start: false, timeoutMs: 500 });
  const open = path.join(base, 'open');
  mkdirSync(open);
  chmodSync(open, 0o755);
  const link = path.join(base, 'link');
  symlinkSync(world.directory, link);
  for (const [directory, why] of [
    [open, /mode 0755/],
    [link, /symbolic link/],
    [path.join(base, 'none'), /no daemon/],
  ]) {
    const error = await at(directory)
      .list()
      .catch((error) => error);
    assert.equal(error.code, 'not_connected');
    assert.match(error.message, why);
    assert.equal(error.httpStatus, 503);
  }
  assert.equal(await code(at('relative').list()), 'not_connected');
});

test('a daemon is started where none runs', async () => {
  const other = new World();
  const sessions = Sessions.ofService('shop', { directory: other.directory, binary });
  const session = await sessions.create();
  await session.set('k', 1);
  sessions.hangUp();
  assert.equal(await session.get('k'), 1);
  const missing = Sessions.ofService('shop', {
    directory: path.join(other.base, 'e'),
    binary: '/nonexistent/mcp-sessiond',
  });
  const error = await missing.list().catch((error) => error);
  assert.match(error.message, /could not be started/);
  await other.end();
});

test('a daemon that is killed and started again is not noticed, also by who waits', async () => {
  const own = await new World().start();
  const sessions = Sessions.ofService('shop', own.options);
  const session = await sessions.create();
  const first = await session.standalone.append({ n: 1 });
  const attachment = await session.attach();
  const waiting = session.wait([{ event: first.id }], 20_000);
  const pending = Array.from({ length: 20 }, (_, n) => session.standalone.append({ n }));
  await own.kill();
  await own.start();
  await Promise.all(pending);
  assert.ok((await waiting).events.length > 0);
  const { events } = await session.replayAll({ event: first.id });
  assert.deepEqual(
    events.map(({ json }) => JSON.parse(json).n).sort((a, b) => a - b),
    pending.map((_, n) => n),
    'each once',
  );
  await attachment.detach();
  await own.kill();
  const impatient = await Sessions.ofService('shop', { ...own.options, timeoutMs: 200 })
    .list()
    .catch((error) => error);
  assert.equal(impatient.code, 'not_connected');
  await own.end();
});

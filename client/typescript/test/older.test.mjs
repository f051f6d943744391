// Daemons of before: `tests/python/older.py` stands between the library and the daemon, and refuses what those
// don't know.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Sessions } from '../dist/index.js';
import { between } from './lib/between.mjs';
import { kill, World } from './lib/daemon.mjs';
import { older } from './lib/older.mjs';
import { serveIn, Wire } from './lib/server.mjs';

const CLOSES = 32n;
const THIS = (1n << 64n) - 1n;
/** This daemon, one of before appends could close, and one of before there were feature bits. */
const DAEMONS = [THIS, THIS & ~CLOSES, 0n];
/** How a stream is closed with its last message. */
const steps = (features) => (features & CLOSES ? ['append close'] : ['append', 'close_stream']);

let world;
before(async () => (world = await new World().start()));
after(() => world.end());

test('the library closes a stream with its last message', async (t) => {
  for (const features of DAEMONS) {
    const { directory, calls } = await older(world, features, t);
    const session = await Sessions.ofService('web', { directory, start: false }).create();
    const stream = await session.openStream('call', { will: { late: true } });
    await calls('open_stream');
    const appended = await stream.append({ n: 1 }, { close: true });
    assert.deepEqual(await calls(steps(features).at(-1)), steps(features));
    assert.equal((await session.findEvent(appended.id)).ended, true);
    await assert.rejects(stream.append({ n: 2 }), { code: 'stream_closed' });
    const again = await session.openStream('again');
    const first = await again.appendAll([{ n: 1 }], 'r', { close: true });
    assert.deepEqual(await again.appendAll([{ n: 1 }], 'r', { close: true }), first);
    await assert.rejects(session.standalone.append({ n: 3 }, { close: true }), { code: 'invalid_argument' });
  }
});

test('what is kept is not rejected where an older daemon can not close the stream', async (t) => {
  const { directory } = await older(world, THIS & ~CLOSES, t);
  let asked = 0;
  const line = await between(
    world,
    (method) => {
      if (method !== 'close_stream') return undefined;
      asked++;
      return 'break';
    },
    directory,
  );
  t.after(() => line.close());
  const session = await Sessions.ofService('web', { ...line.options, timeoutMs: 2000 }).create();
  const stream = await session.openStream('call');
  const { id } = await stream.append({ n: 1 }, { close: true });
  assert.ok(asked > 0);
  const { stream: view, ended } = await session.findEvent(id);
  assert.deepEqual([view.closed, ended], [false, false]);
});

for (const version of ['1.32', '2']) {
  test(`a call of ${version} is answered and its stream closed with every daemon`, async (t) => {
    for (const features of DAEMONS) {
      const { directory, calls } = await older(world, features, t);
      const server = await serveIn({ env: { ...world.env, MCP_SESSIOND_DIR: directory } }, version);
      t.after(() => kill(server.child));
      const client = await new Wire(server.url).begin();
      assert.equal(await client.text('visit'), '1');
      let of;
      // The first of two, so that what the handshake asks of the daemon is over.
      for (const visit of ['2', '3']) {
        assert.equal(await client.text('visit'), visit);
        of = await calls(steps(features).at(-1));
      }
      assert.deepEqual(
        of.filter((call) => /stream|append/.test(call)),
        ['open_stream', 'append', ...steps(features)],
        of.join(),
      );
      const session = await Sessions.ofService('test', world.options).open(client.session);
      const streams = (await session.streams()).filter(({ id }) => id.startsWith('post-'));
      assert.ok(streams.length >= 2);
      assert.deepEqual(
        streams.filter(({ closed }) => !closed),
        [],
      );
    }
  });
}

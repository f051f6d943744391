// A stream is closed in one step with its last message.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Sessions } from '../dist/index.js';
import { between } from './lib/between.mjs';
import { kill, World } from './lib/daemon.mjs';
import { serveIn, Wire } from './lib/server.mjs';

let world;
before(async () => (world = await new World().start()));
after(() => world.end());

/** A way to the daemon, and the calls about streams that took it since this was asked last. */
async function recorded(t) {
  let calls = [];
  const line = await between(world, (method, params) => {
    if (/stream|append/.test(method)) calls.push(params.close ? `${method} close` : method);
  });
  t.after(() => line.close());
  return { ...line, calls: () => calls.splice(0) };
}

test('the library closes a stream with its last message', async (t) => {
  const { options, calls } = await recorded(t);
  const session = await Sessions.ofService('web', options).create();
  const stream = await session.openStream('call', { will: { late: true } });
  calls();
  const appended = await stream.append({ n: 1 }, { close: true });
  assert.deepEqual(calls(), ['append close']);
  assert.equal((await session.findEvent(appended.id)).ended, true);
  await assert.rejects(stream.append({ n: 2 }), { code: 'stream_closed' });
  const again = await session.openStream('again');
  const first = await again.appendAll([{ n: 1 }], 'r', { close: true });
  assert.deepEqual(await again.appendAll([{ n: 1 }], 'r', { close: true }), first);
  await assert.rejects(session.standalone.append({ n: 3 }, { close: true }), { code: 'invalid_argument' });
});

for (const version of ['1.32', '2']) {
  test(`a call of ${version} is answered, and its stream closed with the answer`, async (t) => {
    const { options, calls } = await recorded(t);
    const server = await serveIn({ env: { ...world.env, MCP_SESSIOND_DIR: options.directory } }, version);
    t.after(() => kill(server.child));
    const client = await new Wire(server.url).begin();
    assert.equal(await client.text('visit'), '1');
    // The first of two, so that what the handshake asks of the daemon is over.
    assert.equal(await client.text('visit'), '2');
    calls();
    assert.equal(await client.text('visit'), '3');
    assert.deepEqual(calls(), ['open_stream', 'append', 'append close']);
    const session = await Sessions.ofService('test', world.options).open(client.session);
    const streams = (await session.streams()).filter(({ id }) => id.startsWith('post-'));
    assert.ok(streams.length >= 2);
    assert.deepEqual(
      streams.filter(({ closed }) => !closed),
      [],
    );
  });
}

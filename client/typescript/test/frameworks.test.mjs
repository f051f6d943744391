// What frameworks send for `durable`, and what becomes of clients that break off. tests/conformance/compare has found it.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import net from 'node:net';
import { after, before, test } from 'node:test';
import { kill, World } from './lib/daemon.mjs';
import { serveIn, Wire } from './lib/server.mjs';

let world;
before(async () => {
  world = await new World().start();
});
after(() => world.end());

const HEAD = ['POST /mcp HTTP/1.1', 'Host: localhost', 'Content-Type: application/json'];
/** A request whose second chunk has no size. */
const BROKEN = [...HEAD, 'Transfer-Encoding: chunked', '', '1', '{', 'zz', ''].join('\r\n');

for (const framework of ['raw', 'express', 'fastify', 'hono'])
  test(framework, async (t) => {
    const own = await serveIn(world, '2', 0, framework);
    const client = await new Wire(own.url).begin();
    t.after(() => kill(own.child));

    await t.test('a response without a body has no type', async () => {
      const taken = await client.notify('notifications/initialized');
      assert.deepEqual(
        [taken.status, taken.headers.get('content-type'), await taken.text()],
        [202, null, ''],
      );
    });

    await t.test('a body of another type is 415, as of the SDK', async () => {
      const headers = { 'content-type': 'text/plain' };
      assert.equal((await client.call('visit', {}, { headers })).status, 415);
    });

    await t.test('a client that breaks off ends nobody else', async () => {
      for (let visits = 1; visits <= 2; visits++) {
        const socket = net.connect(own.port, '127.0.0.1').resume();
        socket.write(BROKEN);
        await once(socket, 'close');
        const large = await client.call('large', { bytes: 1_000_000 });
        await large.body.cancel();
        assert.equal(await client.text('visit'), String(visits));
      }
    });
  });

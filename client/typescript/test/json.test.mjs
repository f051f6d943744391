// An app that answers in JSON, with the official clients at the other end.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Sessions } from '../dist/index.js';
import { kill, World } from './lib/daemon.mjs';
import { connect } from './lib/host.mjs';
import { serveIn, Wire } from './lib/server.mjs';

let world;
before(async () => {
  world = await new World().start();
});
after(() => world.end());

const SIZES = [900_000, 1_100_000, 3_000_000, 16_000_000];

for (const [version, client, framework, enableJsonResponse] of [
  ['1.13', '1.32', 'http', true],
  ['1.24', '1.32', 'express', true],
  ['1.32', '1.32', 'fastify', true],
  ['1.32', '2', 'hono', true],
  ['2', '1.32', 'raw', true],
  ['2', '2', 'http', true],
  ['2', '2', 'fastify', false],
])
  test(
    `SDK ${version} on ${framework}, client ${client}: results of up to 16 MB are whole${enableJsonResponse ? ' JSON' : ''}`,
    { timeout: 60_000 },
    async (t) => {
      const own = await serveIn(world, version, 0, framework, { enableJsonResponse });
      t.after(() => kill(own.child));
      const types = new Set();
      const asking = async (url, init) => {
        const response = await fetch(url, init);
        if (init.method === 'POST' && response.status === 200)
          types.add(response.headers.get('content-type'));
        return response;
      };
      const host = await connect(client, own.url, { fetch: asking });
      for (const bytes of SIZES)
        assert.equal(await host.text('large', { bytes }), 'x'.repeat(bytes), `of ${bytes} bytes`);
      assert.deepEqual([...types], [enableJsonResponse ? 'application/json' : 'text/event-stream']);
      await host.client.close();
    },
  );

for (const version of ['1.13', '2'])
  test(`SDK ${version}: an answer in JSON is kept, also behind a kill`, async (t) => {
    const own = await serveIn(world, version, 0, 'raw', { enableJsonResponse: true });
    t.after(() => kill(own.child));
    const client = new Wire(own.url, '2025-06-18');
    const begun = await client.initialize();
    client.session = begun.headers.get('mcp-session-id');
    const answers = [await begun.text()];
    assert.equal((await client.notify('notifications/initialized')).status, 202);
    answers.push(await (await client.call('visit')).text());
    await kill(own.child);

    const session = await Sessions.ofService('test', world.options).open(client.session);
    const kept = [];
    for (const { id, openedBy, closed } of await session.streams()) {
      const { events } = await session.replayAll({ stream: id });
      kept.push([openedBy, closed, events.map(({ json }) => json)]);
    }
    kept.sort(([one], [other]) => one - other);
    assert.deepEqual(kept, [
      [1, true, [answers[0]]],
      [2, true, [answers[1]]],
    ]);
    assert.equal(JSON.parse(answers[1]).result.content[0].text, '1');
  });

for (const version of ['1.13', '2'])
  test(
    `SDK ${version}: a server that is closed leaves no call in JSON without an answer`,
    { timeout: 60_000 },
    async (t) => {
      const own = await serveIn(world, version, 0, 'raw', { enableJsonResponse: true });
      t.after(() => kill(own.child));
      const client = new Wire(own.url, '2025-06-18');
      client.session = (await client.initialize()).headers.get('mcp-session-id');
      assert.equal((await client.notify('notifications/initialized')).status, 202);
      const { error } = await (await client.call('close')).json();
      assert.deepEqual(error.data, { outcome: 'unknown' });
      const { result } = await (await client.call('visit')).json();
      assert.equal(result.content[0].text, '1');
    },
  );

// A server on the official SDK that is killed in the middle of a call and started again, with the official
// client at the other end, for every version that is supported.
import assert from 'node:assert/strict';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { durable } from '../dist/index.js';
import { kill, World } from './lib/daemon.mjs';
import { connect } from './lib/host.mjs';
import { serveIn } from './lib/server.mjs';
import { serverSdk } from './sdks/sdk.mjs';

let world;
before(async () => {
  world = await new World().start();
});
after(() => world.end());

const serve = (...given) => serveIn(world, ...given);

/** What has to hold for a server of a version, whose client is of another. */
async function survives(version, client, framework) {
  const first = await serve(version, 0, framework);
  const { transport, text, notes, noted, client: host } = await connect(client, first.url);
  const { sessionId } = transport;
  assert.ok(sessionId);
  assert.equal(await text('visit'), '1');
  assert.equal(await text('session'), sessionId);
  await text('notify', { n: 2 });
  await noted(2);

  const progress = [];
  let begun;
  const beginning = new Promise((resolve) => {
    begun = resolve;
  });
  const onprogress = ({ progress: step }) => {
    progress.push(step);
    begun();
  };
  const gate = path.join(world.base, `gate-${version}-${client}`);
  const call = text('steps', { n: 3, gate }, { onprogress, timeout: 60_000 }).then(
    () => assert.fail('it was answered'),
    (error) => error,
  );
  await beginning;
  await kill(first.child);

  const second = await serve(version, first.port, framework);
  const lost = await call;
  assert.equal(lost.code, -32000);
  assert.match(lost.message, /the outcome of this call is unknown/);
  assert.deepEqual(progress, [1], 'what was sent comes once');

  assert.equal(await text('visit'), '2', 'the same session, with its state');
  const { info, capabilities } = JSON.parse(await text('who'));
  assert.equal(info.name, 'tester');
  assert.equal(info.version, '7.0.0');
  assert.deepEqual(capabilities.roots, { listChanged: true });
  assert.equal(transport.sessionId, sessionId);
  await text('notify', { n: 3 });
  await noted(5);
  assert.deepEqual(
    notes.map(({ params }) => params.data),
    [1, 2, 1, 2, 3],
    'each once, and in order',
  );
  assert.ok(!second.out.all.includes('posted initialize'), 'no new handshake');
  assert.equal(second.out.all.filter((line) => line === 'created').length, 1);
  await host.close();
  await kill(second.child);
}

for (const version of ['1.13', '1.17', '1.21', '1.24', '1.26', '1.29', '1.32']) {
  test(`SDK ${version}, client 1.32`, { timeout: 60_000 }, () => survives(version, '1.32'));
}
test('SDK 2, client 2', { timeout: 60_000 }, () => survives('2', '2'));
for (const framework of ['express', 'fastify', 'hono']) {
  test(`SDK 1.32 on ${framework}`, { timeout: 60_000 }, () => survives('1.32', '1.32', framework));
}
test('SDK 2 on express', { timeout: 60_000 }, () => survives('2', '2', 'express'));

test('without the executable the log says so as soon as the server starts', { timeout: 60_000 }, async () => {
  const { Server, Transport: transport } = await serverSdk('1.32');
  const createServer = () => new Server({ name: 'none', version: '1' }, { capabilities: {} });
  const binary = path.join(world.base, 'nowhere');
  let handler;
  const line = await new Promise((resolve) => {
    const log = (_, line) => resolve(line);
    const directory = path.join(world.base, 'none');
    handler = durable(createServer, { service: 'none', transport, directory, binary, log });
  });
  await handler.close();
  assert.match(
    line,
    /^mcp-sessiond: requests get 503: no daemon runs, and .*nowhere could not be started: .*install it/,
  );
});

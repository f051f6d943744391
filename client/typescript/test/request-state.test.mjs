// `requestState` of MCP 2026-07-28, signed by one process and verified by another one.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Sessions } from '../dist/index.js';
import { kill, World } from './lib/daemon.mjs';
import { Modern, serveTasks } from './lib/modern.mjs';

let world;
before(async () => {
  world = await new World().start();
});
after(() => world.end());

const count = (client, requestState, done = false) =>
  client.call('count', { done }, requestState === undefined ? {} : { requestState });

test('state that one process has signed is verified by the next, after SIGKILL and with another key', async () => {
  const first = await serveTasks(world);
  const client = new Modern(first.url);
  const one = await count(client);
  assert.equal(one.resultType, 'input_required');
  await kill(first.child);
  await world.kill();
  await world.start();
  const second = await serveTasks(world);
  const there = client.with({ url: second.url });
  const two = await count(there, one.requestState);
  await Sessions.ofService('tasks', world.options).rotateSecret();
  const third = await serveTasks(world);
  const elsewhere = client.with({ url: third.url });
  const three = await count(elsewhere, two.requestState);
  assert.equal((await count(elsewhere, three.requestState, true)).content[0].text, '4');
  // The second process has not heard of the new key.
  assert.equal((await count(there, three.requestState, true)).content[0].text, '4');
  const forged = three.requestState.replace(/.$/, (last) => (last === 'A' ? 'B' : 'A'));
  for (const requestState of [`${forged.slice(0, -3)}AAA`, 'v1.e30.AAAA', 'none'])
    assert.equal(
      (await there.error('tools/call', { name: 'count', arguments: {}, requestState })).code,
      -32602,
    );
  await Promise.all([kill(second.child), kill(third.child)]);
});

test('without a daemon states count in their process, which says so once', async () => {
  const none = new World();
  const server = await serveTasks(none);
  const client = new Modern(server.url);
  const one = await count(client);
  const two = await count(client, one.requestState);
  assert.equal((await count(client, two.requestState, true)).content[0].text, '3');
  assert.equal(server.out.all.filter((line) => line.includes('requestState')).length, 1);
  await none.start();
  assert.equal((await count(client, two.requestState, true)).content[0].text, '3');
  await kill(server.child);
  await none.end();
});

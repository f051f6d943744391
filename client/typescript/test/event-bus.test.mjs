// The bus of the SDK's v2, between processes: each bus here has connections of its own.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { eventBus, Sessions } from '../dist/index.js';
import { World } from './lib/daemon.mjs';

let world;
before(async () => {
  world = await new World().start();
});
after(() => world.end());

/**
 * A bus, and what one listener of it has heard. `count` waits until it was so many, `until` for one that
 * fits.
 */
function bus(options) {
  const made = eventBus({ service: 'bus', ...world.options, ...options });
  const heard = [];
  let look = () => undefined;
  const stop = made.subscribe((event) => {
    heard.push(event);
    look();
  });
  const when = (fits) =>
    new Promise((resolve) => {
      look = () => fits() && resolve(heard);
      look();
    });
  const count = (most) => when(() => heard.length >= most);
  const until = (fits) => when(() => heard.some(fits));
  return { bus: made, heard, stop, count, until };
}

test('who listens at one process hears what another publishes, once and in order', async () => {
  const [one, two] = [bus(), bus()];
  const uris = Array.from({ length: 50 }, (_, n) => `file:///${n}`);
  one.bus.publish({ kind: 'tools_list_changed' });
  assert.deepEqual(await one.count(1), [{ kind: 'tools_list_changed' }]);
  two.bus.publish({ kind: 'prompts_list_changed' });
  await one.count(2);
  // The other one may have begun to listen after the first event.
  await two.until(({ kind }) => kind === 'prompts_list_changed');
  const before = two.heard.length;
  for (const uri of uris) one.bus.publish({ kind: 'resource_updated', uri });
  assert.deepEqual(
    (await one.count(52)).slice(2).map(({ uri }) => uri),
    uris,
  );
  assert.deepEqual(
    (await two.count(before + 50)).slice(before).map(({ uri }) => uri),
    uris,
  );
  one.stop();
  two.stop();
});

test('without a daemon the listeners of the process itself hear, and nothing is thrown', async () => {
  const none = new World();
  const log = [];
  const lone = bus({ ...none.options, log: (_, line) => log.push(line) });
  lone.bus.publish({ kind: 'tools_list_changed' });
  lone.bus.publish({ kind: 'prompts_list_changed' });
  assert.deepEqual(
    (await lone.count(2)).map(({ kind }) => kind),
    ['tools_list_changed', 'prompts_list_changed'],
  );
  assert.equal(log.length, 1);
  lone.stop();
  await none.end();
});

test('a bus goes on when its session was emptied', async () => {
  const one = bus();
  one.bus.publish({ kind: 'tools_list_changed' });
  await one.count(1);
  one.stop();
  const two = bus();
  two.bus.publish({ kind: 'prompts_list_changed' });
  await two.count(1);
  const session = await Sessions.ofService('bus', world.options).open('mcp.events');
  await session.reset();
  two.bus.publish({ kind: 'resources_list_changed' });
  assert.deepEqual((await two.count(2)).at(-1), { kind: 'resources_list_changed' });
  two.stop();
});

test('an event that comes before its bus could begin to listen is heard once', async (t) => {
  const full = await new World({ 'limits.sessions_per_service': 1 }).start();
  t.after(() => full.end());
  const sessions = Sessions.ofService('bus', full.options);
  await sessions.create({ status: { is: 'ready' } });
  let failed;
  const hasFailed = new Promise((resolve) => (failed = resolve));
  const one = bus({ ...full.options, log: (_, line) => failed(line) });
  assert.match(await hasFailed, /do not hear of changes: .*number of sessions/);
  await full.kill();
  full.settings = {};
  await full.start();
  one.bus.publish({ kind: 'tools_list_changed' });
  await one.count(1);
  one.bus.publish({ kind: 'prompts_list_changed' });
  assert.deepEqual(
    (await one.count(2)).map(({ kind }) => kind),
    ['tools_list_changed', 'prompts_list_changed'],
  );
  const session = await sessions.open('mcp.events');
  assert.equal((await session.view()).lastNumber, 2n);
  one.stop();
});

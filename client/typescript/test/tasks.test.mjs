// Tasks, values that go by themselves, and a service's secret, on a real daemon that is killed.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { inspect } from 'node:util';
import { isCode, Sessions } from '../dist/index.js';
import { World } from './lib/daemon.mjs';

let world;
before(async () => {
  world = await new World().start();
});
after(() => world.end());

const ofService = () => Sessions.ofService('shop', world.options);
const refused = (code) => (error) => isCode(error, code);

test('a task survives the daemon, asks its client, and ends', async () => {
  const session = await ofService().create();
  const { task, view } = await session.createTask({ ttlMs: 3_600_000, pollMs: 500, message: 'begun' });
  assert.deepEqual([view.status, view.ttlMs, view.pollMs, view.version], ['working', 3_600_000, 500, 1n]);
  await world.kill();
  await world.start();
  assert.deepEqual(await task.view(), view);
  const waiting = task.changed(view.version, 20_000);
  const asked = await task.update({ ask: { name: { method: 'elicitation/create' } } });
  assert.equal(asked.status, 'input_required');
  assert.equal((await waiting).version, asked.version);
  const reused = task.update({ ask: { name: { method: 'another' } } });
  await assert.rejects(reused, refused('invalid_argument'));
  const answered = await session.task(task.id).update({ answer: { name: 'Ann', 'never asked': 1 } });
  assert.equal(answered.status, 'working');
  assert.deepEqual(answered.inputs, [
    { key: 'name', request: { method: 'elicitation/create' }, response: 'Ann' },
  ]);
  const stop = new AbortController();
  const stopped = task.changed(answered.version, 20_000, stop.signal);
  stop.abort();
  assert.equal((await stopped).version, answered.version);
  const ended = await task.complete({ content: [] });
  assert.deepEqual([ended.status, ended.result, ended.inputs], ['completed', { content: [] }, []]);
  assert.deepEqual(await task.complete({ content: [] }), ended, 'repeating it has no further effect');
  await assert.rejects(task.cancel(), refused('task_ended'));
  await assert.rejects(session.task('none').view(), refused('unknown_task'));
  const [listed, ...others] = await session.tasks();
  assert.deepEqual([listed.id, listed.result, others], [task.id, undefined, []]);
  const made = await session.createTask({ request: 'r' });
  assert.equal((await session.createTask({ request: 'r' })).view.id, made.view.id);
  assert.deepEqual((await made.task.fail({ code: 1 })).error, { code: 1 });
});

test('tasks are listed over several pages', async () => {
  const session = await ofService().create();
  const made = await Promise.all(Array.from({ length: 120 }, () => session.createTask()));
  assert.deepEqual(
    (await session.tasks()).map(({ id }) => id),
    made.map(({ task }) => task.id).sort(),
  );
});

test('a value goes by itself, and a secret is shared', async () => {
  const session = await ofService().create();
  await session.set('lasting', 1);
  await session.set('short', 2, { expiresMs: 3_600_000 });
  const [lasting, short] = await session.keys();
  assert.equal(lasting.expiresMs, undefined);
  assert.ok(short.expiresMs > Date.now());
  await session.set('gone', 3, { expiresMs: 1 });
  while ((await session.get('gone')) !== undefined);
  await assert.rejects(session.set('bad', 1, { expiresMs: 0 }), refused('invalid_argument'));
  const secret = await ofService().secret();
  assert.deepEqual([secret.current.length, secret.former], [32, []]);
  const rotated = await ofService().rotateSecret();
  assert.deepEqual(rotated.former, [secret.current]);
  assert.deepEqual(await ofService().secret(), rotated);
  assert.ok(!inspect(ofService()).includes('secret'));
});

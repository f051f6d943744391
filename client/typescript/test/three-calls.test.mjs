// Version 1's calls of a server on stdio, whose host this test is.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { ended, kill, lines, World } from './lib/daemon.mjs';

let world;
before(async () => {
  world = await new World().start();
});
after(() => world.end());

/** A server that obeys, and what it has logged. */
function server(options = {}, env = world.env) {
  const given = JSON.stringify({ start: false, ...options });
  const child = spawn(process.execPath, [path.join(import.meta.dirname, 'broker.mjs'), given], {
    env,
    stdio: 'pipe',
  });
  const [out, err] = [lines(child.stdout), lines(child.stderr)];
  const order = async (line) => {
    child.stdin.write(`${line}\n`);
    return JSON.parse((await out.next(/.*/))[0]);
  };
  return {
    child,
    order,
    logged: err.all,
    end: () => {
      child.stdin.end();
      return ended(child);
    },
  };
}

test('a token comes back after a SIGKILL, and the lines are those of the design', async () => {
  const first = server({ label: 'a' });
  assert.equal(await first.order('load'), null);
  assert.equal(await first.order('store one'), true);
  assert.deepEqual((await first.order('status')).is, 'active');
  await kill(first.child);
  assert.deepEqual(first.logged, ['Token file not found (first run or clean slate)']);

  const second = server({ label: 'a' });
  assert.equal(await second.order('load'), 'one');
  assert.equal(await second.order('store two'), true);
  assert.equal(await second.order('store three'), true);
  await second.end();
  assert.deepEqual(second.logged, ['Session resumed successfully'], 'said once');

  const third = server({ label: 'a' });
  assert.equal(await third.order('load'), 'three');
  assert.equal(await third.order('reject'), true);
  assert.equal(await third.order('store four'), true);
  await third.end();
  assert.deepEqual(third.logged, ['Broker rejected resume token, starting fresh session']);
});

test('the session of the token has state, which ends when a server begins anew', async () => {
  const first = server({ label: 'b' });
  assert.equal(typeof (await first.order('session')), 'string');
  assert.equal(await first.order('store token'), true);
  await kill(first.child);
  const second = server({ label: 'b' });
  assert.equal(await second.order('value'), 1);
  assert.equal(await second.order('anew'), true);
  assert.equal(await second.order('value'), null);
  assert.equal(await second.order('load'), null);
  await second.end();
});

test('a lease outlives the daemon, and a token is stored by the next one', async () => {
  const own = await new World().start();
  const first = server({}, own.env);
  assert.equal(await first.order('load'), null);
  await own.kill();
  await own.start();
  assert.equal(await first.order('store one'), true);
  await first.end();
  const second = server({}, own.env);
  assert.equal(await second.order('load'), 'one');
  await second.end();
  await own.end();
});

test('many writes at once find the lease again after a restart of the daemon', async () => {
  const own = await new World().start();
  const first = server({ timeoutMs: 5_000 }, own.env);
  assert.equal(typeof (await first.order('session')), 'string');
  await own.kill();
  await own.start();
  assert.equal(await first.order('burst'), 'kept');
  await first.end();
  await own.end();
});

test('without a daemon resume is disabled, with one line, and no call throws', async () => {
  const none = new World();
  const lone = server({ timeoutMs: 300 }, none.env);
  assert.equal(await lone.order('load'), null);
  assert.equal(await lone.order('store one'), false);
  assert.equal(await lone.order('reject'), false);
  assert.equal(await lone.order('session'), null);
  assert.deepEqual(await lone.order('status'), { is: 'disabled', code: 'not_connected' });
  await lone.end();
  assert.equal(lone.logged.length, 1);
  assert.match(lone.logged[0], /^Session resume disabled: no daemon listens at /);
  await none.end();
});

test('what is no token is not stored, and is told', async () => {
  const own = server({ label: 'c' });
  assert.equal(await own.order('store '), false);
  await own.end();
  assert.deepEqual(own.logged, [
    'Resume token not stored: a resume token has at least 1 byte; this one is empty',
  ]);
});

// The session that has version 1's token, of a server whose host this test is. The three calls are in tests/languages.
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

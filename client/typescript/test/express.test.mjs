// express-session on the daemon.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { Sessions } from '../dist/index.js';
import { kill, lines, World } from './lib/daemon.mjs';

let world;
before(async () => {
  world = await new World().start();
});
after(() => world.end());

async function start(port = 0) {
  const script = path.join(import.meta.dirname, 'sdks/site.mjs');
  const child = spawn(process.execPath, [script, String(port)], {
    env: world.env,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [, url] = await lines(child.stdout).next(/^listening at (.*)$/);
  return { child, url, port: new URL(url).port };
}

/** A browser, as far as cookies go. */
function visitor(url) {
  let cookie = '';
  return async (where = '/') => {
    const response = await fetch(url + where, { headers: { cookie } });
    cookie = response.headers.get('set-cookie')?.split(';')[0] ?? cookie;
    return [await response.text(), cookie];
  };
}

test('the sessions of a site survive it, end when destroyed, and their ids are not told', async () => {
  const first = await start();
  const [one, two] = [visitor(first.url), visitor(first.url)];
  assert.equal((await one())[0], '1');
  const [visits, cookie] = await one();
  assert.equal(visits, '2');
  assert.equal((await two())[0], '1');
  await kill(first.child);
  const second = await start(first.port);
  assert.equal((await one())[0], '3');
  assert.equal((await two('/out'))[0], 'out');
  assert.equal((await two())[0], '1');
  assert.equal((await two('/count'))[0], '2');
  const kept = await Sessions.ofService('web', world.options).list();
  const sid = decodeURIComponent(cookie).match(/s:([^.]*)/)[1];
  assert.ok(kept.every(({ id }) => id !== sid && !id.includes(sid)));
  const living = kept.filter(({ status }) => status.is === 'ready');
  // The cookie's end is a time of day: what is left of it by now is what counts.
  const left = living[0].expiresMs - living[0].activeMs;
  assert.ok(left > 50_000 && left <= 60_000, `it lives as long as its cookie: ${left}`);
  assert.equal((await two('/clear'))[0], 'clear');
  assert.equal((await one())[0], '1');
  await kill(second.child);
});

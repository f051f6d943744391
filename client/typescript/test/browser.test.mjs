// A page that is reloaded in the middle of a call: its script is killed, and started again with the same
// storage.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { Sessions } from '../dist/index.js';
import { kill, lines, World } from './lib/daemon.mjs';
import { serveIn } from './lib/server.mjs';

let world;
before(async () => {
  world = await new World().start();
});
after(() => world.end());

/** A page. `told`: what it tells next, of some kind. */
async function open(version, url) {
  const script = path.join(import.meta.dirname, 'sdks/page.mjs');
  const file = path.join(world.base, `storage-${version}`);
  const child = spawn(process.execPath, [script, version, url, file], { stdio: ['pipe', 'pipe', 'inherit'] });
  const out = lines(child.stdout);
  const told = async (kind) => JSON.parse((await out.next(new RegExp(`^{"${kind}":.*`)))[0]);
  const order = (given) => child.stdin.write(`${JSON.stringify(given)}\n`);
  return { child, told, order, all: out.all, begun: await told('connected') };
}

for (const version of ['1.32', '2']) {
  test(`a page with the client of SDK ${version}`, { timeout: 60_000 }, async () => {
    const server = await serveIn(world, version);
    const gates = ['one', 'two'].map((name) => path.join(world.base, `gate-${version}-${name}`));
    const first = await open(version, server.url);
    assert.equal(first.begun.resumed, false);
    first.order({ do: 'call', name: 'visit' });
    assert.equal((await first.told('called')).text, '1');
    first.order({ do: 'call', name: 'steps', given: { n: 3, gate: gates[0] } });
    assert.equal((await first.told('called')).progress, 1);
    await kill(first.child);

    const second = await open(version, server.url);
    assert.deepEqual(second.begun, { connected: first.begun.connected, resumed: true, calls: ['steps'] });
    // Calls of this page have ids and progress tokens of their own, though the client counts from 0 again.
    second.order({ do: 'call', name: 'visit' });
    assert.deepEqual(await second.told('called'), { called: 'visit', text: '2' });
    second.order({ do: 'call', name: 'steps', given: { n: 2, gate: gates[1] } });
    assert.deepEqual(await second.told('called'), { called: 'steps', progress: 1 });
    second.order({ do: 'call', name: 'notify', given: { n: 2 } });
    assert.deepEqual([await second.told('note'), await second.told('note')], [{ note: 1 }, { note: 2 }]);
    writeFileSync(gates[0], '');
    assert.deepEqual(await second.told('resumed'), { resumed: 'steps', progress: 2 });
    assert.deepEqual(await second.told('resumed'), { resumed: 'steps', progress: 3 });
    assert.deepEqual(await second.told('resumed'), { resumed: 'steps', text: '3' });
    await kill(second.child);

    // The server is killed, too: the call of the second page is answered by its will.
    const third = await open(version, server.url);
    assert.deepEqual(third.begun.calls, ['steps']);
    await kill(server.child);
    const again = await serveIn(world, version, server.port);
    assert.deepEqual(await third.told('resumed'), { resumed: 'steps', code: -32000 });
    third.order({ do: 'call', name: 'visit' });
    assert.equal((await third.told('called')).text, '3');
    assert.ok(!again.out.all.includes('posted initialize'));
    await kill(third.child);

    // A session that has ended: the page connects in full.
    const sessions = Sessions.ofService('test', world.options);
    await (await sessions.open(first.begun.connected)).terminate();
    const fourth = await open(version, again.url);
    assert.equal(fourth.begun.resumed, false);
    assert.notEqual(fourth.begun.connected, first.begun.connected);
    fourth.order({ do: 'end' });
    await fourth.told('ended');
    await assert.rejects(sessions.open(fourth.begun.connected), { code: 'session_terminated' });
    await kill(fourth.child);

    // An entry of somebody else, or half of one: the page connects in full, and its next one resumes.
    for (const text of [
      '',
      'null',
      '"dark"',
      '{"session":1,"open":{}}',
      '{"session":"a","open":null}',
      '{"sess',
    ]) {
      writeFileSync(path.join(world.base, `storage-${version}`), text);
      const page = await open(version, again.url);
      assert.equal(page.begun.resumed, false, text);
      await kill(page.child);
    }
    const next = await open(version, again.url);
    assert.equal(next.begun.resumed, true);
    await kill(next.child);
    await kill(again.child);
  });
}

// The connection is cut, the server or the daemon is killed, after a number of bytes that is drawn at random,
// and the official client is at the other end. MCP_SESSIOND_CUTS: how often, for each version (5);
// MCP_SESSIOND_SEED: repeats a run; MCP_SESSIOND_RESULTS: a file that gets a line of JSON for each version.
import assert from 'node:assert/strict';
import { appendFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { kill, World } from './lib/daemon.mjs';
import { connect } from './lib/host.mjs';
import { Proxy } from './lib/proxy.mjs';
import { serveIn } from './lib/server.mjs';

const rounds = Number(process.env.MCP_SESSIOND_CUTS ?? 5);
const seed = Number(process.env.MCP_SESSIOND_SEED ?? Math.floor(Math.random() * 2 ** 32));
const STEPS = 20;

/** Numbers below `most`, the same for the same seed (mulberry32). */
function drawing(state) {
  return (most) => {
    state = (state + 0x6d2b79f5) | 0;
    let drawn = Math.imul(state ^ (state >>> 15), 1 | state);
    drawn = (drawn + Math.imul(drawn ^ (drawn >>> 7), 61 | drawn)) ^ drawn;
    return ((drawn ^ (drawn >>> 14)) >>> 0) % most;
  };
}

/** Calls of a client while something happens to whoever is there. */
async function survives(version, client, draw) {
  const world = await new World().start();
  let server = await serveIn(world, version);
  const { port } = server;
  const proxy = new Proxy(port);
  const host = await connect(client, await proxy.listen());
  const happened = [];
  const counts = {};
  const count = (name) => {
    counts[name] = (counts[name] ?? 0) + 1;
  };
  const deeds = {
    connection: async (cut) => cut(),
    server: async () => {
      await kill(server.child);
      server = await serveIn(world, version, port);
    },
    daemon: async () => {
      await world.kill();
      await world.start();
    },
  };
  let visits = 0;
  for (let round = 0; round < rounds; round++) {
    // Most of what can go wrong does so when the server is gone.
    const what = ['connection', 'server', 'server', 'daemon'][draw(4)];
    const after = draw(6_000);
    happened.push(`${what} after ${after} bytes`);
    let done = Promise.resolve();
    proxy.light(after, (cut) => {
      count(`${what} cut`);
      done = deeds[what](cut);
    });
    const told = [];
    // The server goes on once the client has heard so much, so that some kills find it in the middle.
    const [gate, hold] = [path.join(world.base, `gate-${round}`), 1 + draw(STEPS)];
    const onprogress = ({ progress }) => {
      told.push(progress);
      if (progress === hold) writeFileSync(gate, '');
    };
    const called = await host.text('steps', { n: STEPS, gate, hold }, { onprogress, timeout: 40_000 }).then(
      (text) => ({ text }),
      (error) => ({ error }),
    );
    const story = `seed ${seed}: ${happened.join(', ')}: told ${told}, then ${called.text ?? called.error}`;
    assert.deepEqual(
      told,
      Array.from({ length: told.length }, (_, at) => at + 1),
      `once and in order: ${story}`,
    );
    if (called.error?.code === -32000) {
      assert.equal(what, 'server', `only a server that is gone leaves a call unanswered: ${story}`);
      count('outcome unknown');
    } else if (called.error) {
      // A call that is cut before its first event has no place to come back to.
      assert.equal(told.length, 0, story);
      count('no event id');
    } else {
      assert.equal(called.text, String(STEPS), story);
      assert.equal(told.length, STEPS, story);
      count('ok');
    }
    await done;
    for (let visit; visit === undefined; ) {
      visits += 1;
      // The fuse may burn only now: then the visit may be lost, but is not made twice.
      visit = await host.text('visit', {}, { timeout: 40_000 }).catch(() => undefined);
      assert.ok(visit === undefined || Number(visit) <= visits, story);
      if (visit !== undefined) visits = Number(visit);
    }
    await done;
  }
  const handshakes = server.out.all.filter((line) => line === 'posted initialize');
  assert.ok(handshakes.length <= 1, 'the client has not begun again');
  await host.client.close();
  proxy.close();
  await kill(server.child);
  await world.end();
  const results = process.env.MCP_SESSIOND_RESULTS;
  if (results)
    appendFileSync(results, `${JSON.stringify({ sdk: `TypeScript ${version}`, rounds, counts })}\n`);
}

const versions = ['1.13', '1.17', '1.21', '1.24', '1.26', '1.29', '1.32', '2'];
for (const [at, version] of versions.entries()) {
  test(`SDK ${version}, seed ${seed}`, { timeout: 60_000 + rounds * 30_000 }, () =>
    survives(version, version === '2' ? '2' : '1.32', drawing(seed + at)),
  );
}

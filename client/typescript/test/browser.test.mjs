// A page that is reloaded in the middle of a call: its script is killed, and started again with the same
// storage.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { createServer } from 'node:http';
import { connectPage } from '../dist/browser.js';
import { Sessions } from '../dist/index.js';
import { kill, lines, World } from './lib/daemon.mjs';
import { serveIn, Wire } from './lib/server.mjs';
import { clientSdk } from './sdks/sdk.mjs';

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
    // Else the call may still be open when the page is killed.
    assert.deepEqual(await second.told('called'), { called: 'notify', text: '2' });
    writeFileSync(gates[0], '');
    assert.deepEqual(await second.told('resumed'), { resumed: 'steps', progress: 2 });
    assert.deepEqual(await second.told('resumed'), { resumed: 'steps', progress: 3 });
    assert.deepEqual(await second.told('resumed'), { resumed: 'steps', text: '3' });
    await kill(second.child);

    // What is said while there is no page, the next one hears.
    const between = new Wire(server.url);
    between.session = first.begun.connected;
    assert.equal(await between.text('notify', { n: 3 }), '3');

    // The server is killed, too: the call of the second page is answered by its will.
    const third = await open(version, server.url);
    assert.deepEqual(third.begun.calls, ['steps']);
    for (const note of [1, 2, 3]) assert.deepEqual(await third.told('note'), { note });
    await kill(server.child);
    const again = await serveIn(world, version, server.port);
    assert.deepEqual(await third.told('resumed'), { resumed: 'steps', code: -32000 });
    third.order({ do: 'call', name: 'visit' });
    assert.equal((await third.told('called')).text, '3');
    assert.ok(!again.out.all.includes('posted initialize'));
    const greeted = server.out.all
      .concat(again.out.all)
      .filter((line) => line === 'posted notifications/initialized');
    assert.equal(greeted.length, 1, 'nothing of the handshake at a reload');
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

/**
 * A server whose standalone stream is `streams`, one answer for each GET: a status, or the id of an event after which the stream
 * stays open. `known`: whether it knows its session. It notes what it was asked.
 */
async function scripted(streams) {
  const server = { known: true, asked: [], streams };
  const http = createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    const message = parts.length > 0 ? JSON.parse(Buffer.concat(parts)) : undefined;
    server.asked.push(message?.method ?? `GET ${request.headers['last-event-id'] ?? ''}`.trim());
    if (message?.method !== 'initialize' && !server.known) return void response.writeHead(404).end();
    if (!message) {
      const next = server.streams.shift() ?? 405;
      if (typeof next === 'number') return void response.writeHead(next).end();
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      return void response.write(
        `id: ${next}\ndata: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"${next}"}}\n\n`,
      );
    }
    if (message.id === undefined) return void response.writeHead(202).end();
    server.known = true;
    const serverInfo = { name: 'scripted', version: '1' };
    const result =
      message.method === 'initialize'
        ? { protocolVersion: '2025-11-25', capabilities: { logging: {} }, serverInfo }
        : {};
    const headers = { 'content-type': 'application/json', 'mcp-session-id': 'scripted' };
    response.writeHead(200, headers).end(JSON.stringify({ jsonrpc: '2.0', id: message.id, result }));
  });
  await new Promise((ready) => http.listen(0, '127.0.0.1', ready));
  server.url = new URL(`http://127.0.0.1:${http.address().port}/mcp`);
  server.close = () => {
    http.closeAllConnections();
    http.close();
  };
  return server;
}

for (const version of ['1.32', '2']) {
  const { Client, Transport } = await clientSdk(version);
  const storage = () => {
    const entries = new Map();
    return {
      getItem: (key) => entries.get(key) ?? null,
      setItem: (key, text) => entries.set(key, text),
      removeItem: (key) => entries.delete(key),
    };
  };
  /** A page. `heard(n)`: the first n things that it was told. */
  const load = async (server, kept) => {
    const client = new Client({ name: 'page', version: '1.0.0' }, { capabilities: {} });
    const told = [];
    let news = () => undefined;
    client.fallbackNotificationHandler = async ({ params }) => {
      told.push(params.data);
      news();
    };
    const reconnectionOptions = {
      initialReconnectionDelay: 5,
      maxReconnectionDelay: 5,
      reconnectionDelayGrowFactor: 1,
      maxRetries: 9,
    };
    const { resumed } = await connectPage(client, Transport, server.url, {
      storage: kept,
      transport: { reconnectionOptions },
    });
    const heard = async (n) => {
      while (told.length < n) await new Promise((come) => (news = come));
      return told;
    };
    return { client, resumed, heard };
  };

  test(`the standalone stream of a page, SDK ${version}`, { timeout: 60_000 }, async () => {
    const kept = storage();
    const server = await scripted(['one']);
    const first = await load(server, kept);
    assert.deepEqual(await first.heard(1), ['one']);
    assert.deepEqual(server.asked, ['initialize', 'notifications/initialized', 'GET']);
    await first.client.close();

    // The server has not noticed that the former page is gone, and then has deleted the event.
    server.streams = [409, 409, 400, 'two'];
    server.asked.length = 0;
    const second = await load(server, kept);
    assert.equal(second.resumed, true);
    assert.deepEqual(await second.heard(1), ['two']);
    assert.deepEqual(server.asked, ['GET one', 'GET one', 'GET one', 'GET']);
    await second.client.close();

    // A server without that stream is asked otherwise whether it knows the session.
    server.streams = [];
    server.asked.length = 0;
    const third = await load(server, kept);
    assert.deepEqual([third.resumed, server.asked], [true, ['GET two', 'ping']]);
    await third.client.close();

    server.known = false;
    server.streams = ['three'];
    server.asked.length = 0;
    const fourth = await load(server, kept);
    assert.deepEqual([fourth.resumed, await fourth.heard(1)], [false, ['three']]);
    assert.deepEqual(server.asked, ['GET two', 'initialize', 'notifications/initialized', 'GET']);
    await fourth.client.close();
    server.close();
  });
}

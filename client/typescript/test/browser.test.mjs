// A page that is loaded again with the same storage, and the official client: what tests/languages/chromium.test.mjs, which reloads
// a page in Chromium in the middle of calls, does not say.
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { test } from 'node:test';
import { connectPage, endPage } from '../dist/browser.js';
import { clientSdk } from './sdks/sdk.mjs';

/**
 * A server whose standalone stream is `streams`, one answer for each GET: a status, or the id of an event after which the stream
 * stays open. `known`: whether it knows its session. It notes what it was asked.
 */
async function scripted(streams) {
  const server = { known: true, asked: [], streams };
  /** What there is to tell of a call, which is answered to who comes back for it, and whether that is all. */
  const callOf = (message, last) => {
    if (message?.method === 'tools/call') server.call = message;
    else if (!server.call || last !== 'call') return [];
    const { id, params } = server.call;
    const said = (more) => JSON.stringify({ jsonrpc: '2.0', ...more });
    const progress = (progress) =>
      said({
        method: 'notifications/progress',
        params: { progressToken: params._meta.progressToken, progress },
      });
    if (message) return [`id: call\ndata: ${progress(1)}\n\n`];
    const result = { content: [{ type: 'text', text: 'done' }] };
    return [`data: ${progress(2)}\n\nid: answer\ndata: ${said({ id, result })}\n\n`, true];
  };
  const http = createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    const message = parts.length > 0 ? JSON.parse(Buffer.concat(parts)) : undefined;
    if (request.method !== 'DELETE')
      server.asked.push(message?.method ?? `GET ${request.headers['last-event-id'] ?? ''}`.trim());
    if (message?.method !== 'initialize' && !server.known) return void response.writeHead(404).end();
    if (request.method === 'DELETE') return void response.writeHead(204).end();
    const [told, answer] = callOf(message, request.headers['last-event-id']);
    if (told) {
      response.writeHead(200, { 'content-type': 'text/event-stream' }).write(told);
      return void (answer && response.end());
    }
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
  const { Client, Transport, call } = await clientSdk(version);
  const storage = () => {
    const entries = new Map();
    return {
      getItem: (key) => entries.get(key) ?? null,
      setItem: (key, text) => entries.set(key, text),
      removeItem: (key) => entries.delete(key),
      /** What somebody else has written there. */
      spoil: (text) => entries.forEach((_, key) => entries.set(key, text)),
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
    const options = { storage: kept, transport: { reconnectionOptions } };
    const connected = await connectPage(client, Transport, server.url, options);
    const heard = async (n) => {
      while (told.length < n) await new Promise((come) => (news = come));
      return told;
    };
    const end = () => endPage(client, connected.transport, options);
    return { client, ...connected, heard, end };
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

  test(`a call of a former page, SDK ${version}`, { timeout: 60_000 }, async () => {
    const kept = storage();
    const server = await scripted([]);
    const former = await load(server, kept);
    await new Promise((told) => {
      call(former.client, { name: 'slow', arguments: {} }, { onprogress: told }).catch(() => undefined);
    });
    // The former page is gone without a word: nothing of it runs any more.
    const { calls, resumed, client } = await load(server, kept);
    assert.deepEqual([resumed, calls.map(({ name }) => name)], [true, ['slow']]);
    const steps = [];
    calls[0].onprogress = ({ progress }) => steps.push(progress);
    assert.equal((await calls[0].result).content[0].text, 'done');
    assert.deepEqual(steps, [2]);
    await client.close();
    server.close();
  });

  test(`a page that ends its session, and entries that are none, SDK ${version}`, async () => {
    const kept = storage();
    const server = await scripted([]);
    await (await load(server, kept)).end();
    // An entry of somebody else, or half of one: the page connects in full, and its next one resumes.
    const odd = ['', 'null', '"dark"', '{"session":1,"open":{}}', '{"session":"a","open":null}', '{"sess'];
    for (const text of [undefined, ...odd]) {
      if (text !== undefined) kept.spoil(text);
      const page = await load(server, kept);
      assert.equal(page.resumed, false, text);
      await page.client.close();
    }
    const next = await load(server, kept);
    assert.equal(next.resumed, true);
    await next.client.close();
    server.close();
  });
}

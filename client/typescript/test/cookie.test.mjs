// Sessions that a cookie names: what tests/conformance/http/cookies.json does not say of every language.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { Cookie } from '../dist/durable/cookie.js';
import { durable, Sessions } from '../dist/index.js';
import { kill, World } from './lib/daemon.mjs';
import { connect } from './lib/host.mjs';
import { all, events, messages, refused, serveIn, Wire } from './lib/server.mjs';

const NAME = 'mcp_session_id';
/** The latest version of MCP that every SDK here speaks. */
const VERSION = '2025-06-18';
let world, server;
before(async () => {
  world = await new World().start();
  server = await serveIn(world, '1.32', 0, 'raw', { cookie: NAME });
});
after(async () => {
  await kill(server.child);
  await world.end();
});

/** A client that knows no id: it sends these cookies. */
const page = (cookies, { url = server.url, headers = {} } = {}) =>
  Object.assign(new Wire(url, VERSION), {
    headers: { ...headers, cookie: cookies, 'mcp-protocol-version': VERSION },
  });
/** A session of a client's, and the cookie that it was given. */
async function begun(headers = {}, url = server.url) {
  const client = Object.assign(new Wire(url, VERSION), { headers });
  const response = await client.initialize();
  await all(events(response));
  client.session = response.headers.get('mcp-session-id');
  assert.equal((await client.notify('notifications/initialized')).status, 202);
  const [pair, ...attributes] = response.headers.get('set-cookie').split('; ');
  assert.equal(pair, `${NAME}=${client.session}`);
  assert.deepEqual(attributes, ['Path=/', 'HttpOnly', 'SameSite=Strict']);
  return { client, pair };
}
const told = (response) => ['mcp-session-id', 'set-cookie'].map((name) => response.headers.get(name));

for (const [version, framework] of [
  ['1.13', 'http'],
  ['1.32', 'express'],
  ['1.32', 'fastify'],
  ['1.32', 'hono'],
  ['2', 'raw'],
])
  test(`SDK ${version} on ${framework}: a cookie alone names a session, which no response tells, also of a server that was killed`, async () => {
    const first = await serveIn(world, version, 0, framework, { cookie: NAME });
    const { client, pair } = await begun({}, first.url);
    assert.equal(await client.text('visit'), '1');
    const own = page(`a=b; ${pair}`, first);
    const posted = await own.call('visit');
    assert.deepEqual(told(posted), [null, null]);
    const visited = await all(messages(posted));
    assert.equal(visited.at(-1).result.content[0].text, '2');
    const got = await own.get(visited.at(-1).event);
    assert.deepEqual([got.status, ...told(got)], [204, null, null]);
    const stop = new AbortController();
    const reading = await own.get(undefined, { signal: stop.signal });
    assert.deepEqual([reading.status, ...told(reading)], [200, null, null]);
    stop.abort();
    await kill(first.child);
    const second = await serveIn(world, version, first.port, framework, { cookie: NAME });
    assert.equal(await own.text('visit'), '3');
    assert.equal(await own.text('session'), client.session);
    // A page that was reloaded begins again.
    const again = await own.initialize();
    assert.deepEqual([again.status, ...told(again)], [200, null, null]);
    assert.equal((await again.json()).result.serverInfo.name, 'durable');
    assert.equal((await own.request('DELETE')).status, 200);
    assert.deepEqual(await refused(client.call('visit')), [404, -32001]);
    await kill(second.child);
  });

for (const version of ['1.32', '2'])
  test(`client ${version}: a page that is reloaded in the middle of a call goes on by its cookie, with the same ids`, async () => {
    // What a browser does for the pages of a site.
    let jar;
    const browser = async (url, given) => {
      const headers = new Headers(given.headers);
      if (jar) headers.set('cookie', jar);
      const response = await fetch(url, { ...given, headers });
      const set = response.headers.get('set-cookie');
      if (set) jar = set.split(';')[0];
      return response;
    };
    const gates = ['former', 'later'].map((name) => path.join(world.base, `${name}-${version}`));
    const former = await connect(version, server.url, { fetch: browser });
    assert.equal(await former.text('visit'), '1');
    /** A call under way, once it has begun. */
    const begun = async (page, n, gate) => {
      let answer;
      await new Promise((resolve) => {
        answer = page.text('steps', { n, gate }, { onprogress: resolve });
      });
      return { answer };
    };
    const one = await begun(former, 2, gates[0]);
    const later = await connect(version, server.url, { fetch: browser });
    assert.equal(later.transport.sessionId, undefined, 'no script is told what the cookie names');
    assert.equal(await later.text('visit'), '2');
    const two = await begun(later, 3, gates[1]);
    writeFileSync(gates[1], '');
    assert.equal(await two.answer, '3');
    writeFileSync(gates[0], '');
    assert.equal(await one.answer, '2');
    await Promise.all([former.client.close(), later.client.close()]);
  });

test('a cookie of a session whose handshake could not be kept is refused', async () => {
  const bare = await Sessions.ofService('test', world.options).create();
  assert.deepEqual(await refused(page(`${NAME}=${bare.id}`).call('visit')), [404, -32001]);
});

test('the headers that a response is sent with are kept, however `writeHead` gets them', async () => {
  const ways = [
    [200, { a: 'b' }],
    [200, ['a', 'b']],
    [200, 'Fine', { a: 'b' }],
    [200, undefined, { a: 'b' }],
  ];
  const site = http.createServer((request, response) => {
    new Cookie(NAME).set(response, 'id');
    response.writeHead(...ways[request.url.slice(1)]).end();
  });
  await new Promise((resolve) => site.listen(0, '127.0.0.1', resolve));
  for (const at of ways.keys()) {
    const { headers } = await fetch(`http://127.0.0.1:${site.address().port}/${at}`);
    assert.equal(headers.get('a'), 'b', `way ${at}`);
    assert.match(headers.get('set-cookie'), /^mcp_session_id=id;/);
  }
  site.close();
});

test('a cookie of a session that was begun without a caller is not taken from one who has a name', async () => {
  const { pair } = await begun();
  const named = page(pair, { headers: { authorization: 'Bearer one' } });
  assert.deepEqual(await refused(named.call('visit')), [404, -32001]);
  const [id, set] = told(await named.initialize());
  assert.ok(set.startsWith(`${NAME}=${id}; `) && !set.startsWith(pair), set);
});

test('the cookie has the attributes that it is given, and wrong ones are said', async () => {
  const cookie = { name: 'sid', path: '/mcp', secure: true, sameSite: 'Lax' };
  for (const [given, expected] of [
    [cookie, 'Path=/mcp; HttpOnly; SameSite=Lax; Secure'],
    [{ name: 'sid', sameSite: 'None' }, 'Path=/; HttpOnly; SameSite=None; Secure'],
  ]) {
    const own = await serveIn(world, '1.32', 0, 'raw', { cookie: given });
    const [id, set] = told(await new Wire(own.url).initialize());
    assert.equal(set, `sid=${id}; ${expected}`);
    await kill(own.child);
  }
  const wrong = ['', 'a b', 'a=b', { name: 'a', path: 'mcp' }, { name: 'a', path: '/;b' }];
  for (const cookie of [...wrong, { name: 'a', sameSite: 'strict' }])
    assert.throws(() => durable(() => undefined, { service: 'test', cookie }), { code: 'invalid_argument' });
});

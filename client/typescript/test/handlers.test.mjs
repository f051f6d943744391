// A durable server in this process: where its handlers find the session, and when it is let go.
import assert from 'node:assert/strict';
import http from 'node:http';
import { after, before, mock, test } from 'node:test';
import { durable, session, Sessions } from '../dist/index.js';
import { World } from './lib/daemon.mjs';
import { Wire } from './lib/server.mjs';
import { serverSdk } from './sdks/sdk.mjs';

let world;
before(async () => {
  world = await new World().start();
});
after(() => world.end());

/** A durable server, and its client. */
async function begun(createServer, options, t) {
  const handler = durable(createServer, {
    service: 'here',
    enableJsonResponse: true,
    ...world.options,
    ...options,
  });
  const listener = http.createServer(handler);
  await new Promise((ready) => listener.listen(0, '127.0.0.1', ready));
  t.after(async () => {
    await handler.close();
    listener.close();
  });
  const wire = new Wire(`http://127.0.0.1:${listener.address().port}/mcp`, '2025-06-18');
  wire.session = (await wire.initialize()).headers.get('mcp-session-id');
  assert.equal((await wire.notify('notifications/initialized')).status, 202);
  return { wire, result: async (method, params) => (await (await wire.post(method, params)).json()).result };
}

for (const version of ['1.32', '2'])
  test(`SDK ${version}: tools, resources, prompts and completions find their session`, async (t) => {
    const { Server, Transport: transport, on } = await serverSdk(version);
    const answers = {
      'tools/call': (text) => ({ content: [{ type: 'text', text }] }),
      'resources/read': (text) => ({ contents: [{ uri: 'test://one', text }] }),
      'prompts/get': (text) => ({ messages: [{ role: 'user', content: { type: 'text', text } }] }),
      'completion/complete': (text) => ({ completion: { values: [text] } }),
    };
    const createServer = () => {
      const capabilities = { tools: {}, resources: {}, prompts: {}, completions: {} };
      const server = new Server({ name: 'handlers', version: '1' }, { capabilities });
      for (const [method, answer] of Object.entries(answers))
        on(server, method, async (_, extra) => {
          assert.equal(session().id, session(extra).id);
          return answer(session(extra).id);
        });
      return server;
    };
    const { wire, result } = await begun(createServer, { transport }, t);
    const asked = {
      'tools/call': { name: 'one', arguments: {} },
      'resources/read': { uri: 'test://one' },
      'prompts/get': { name: 'one' },
      'completion/complete': {
        ref: { type: 'ref/prompt', name: 'one' },
        argument: { name: 'word', value: '' },
      },
    };
    for (const [method, params] of Object.entries(asked))
      assert.deepEqual(await result(method, params), answers[method](wire.session), method);
  });

test(
  'a server that is not used is let go, its session stays, for as long as it lives',
  { timeout: 60_000 },
  async (t) => {
    mock.timers.enable({ apis: ['setInterval'] });
    t.after(() => mock.timers.reset());
    const { Server, Transport: transport, onCall } = await serverSdk('1.32');
    let made = 0;
    let letGo;
    const isLetGo = new Promise((resolve) => (letGo = resolve));
    const createServer = () => {
      const server = new Server({ name: 'idle', version: '1' }, { capabilities: { tools: {} } });
      made++;
      server.onclose = () => letGo();
      onCall(server, async (_, { extra }) => {
        const visits = ((await session(extra).get('visits')) ?? 0) + 1;
        await session(extra).set('visits', visits);
        return { content: [{ type: 'text', text: String(visits) }] };
      });
      return server;
    };
    const lifetimes = { idleMs: 0, absoluteMs: 90_000 };
    const { wire, result } = await begun(createServer, { transport, idleMs: 0, lifetimes }, t);
    const visit = async () => (await result('tools/call', { name: 'visit', arguments: {} })).content[0].text;
    assert.equal(await visit(), '1');
    mock.timers.tick(60_000);
    await isLetGo;
    assert.deepEqual([await visit(), made], ['2', 2]);
    const { createdMs, expiresMs } = await (
      await Sessions.ofService('here', world.options).open(wire.session)
    ).view();
    assert.equal(expiresMs - createdMs, lifetimes.absoluteMs);
  },
);

// A server on stdio whose handlers find the session of its instance, with the official client as its host.
import assert from 'node:assert/strict';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { Sessiond, session } from '../dist/index.js';
import { World } from './lib/daemon.mjs';
import { clientSdk } from './sdks/sdk.mjs';

let world;
before(async () => {
  world = await new World().start();
});
after(() => world.end());

for (const version of ['1.32', '2']) {
  test(`a server on stdio, SDK ${version}`, { timeout: 60_000 }, async () => {
    const { Client, call } = await clientSdk(version);
    const { StdioClientTransport } = await clientSdk(`${version}-stdio`);
    const args = [path.join(import.meta.dirname, 'sdks/stdio.mjs'), version];
    const visit = async () => {
      const client = new Client({ name: 'host', version: '1.0.0' });
      await client.connect(new StdioClientTransport({ command: process.execPath, args, env: world.env }));
      const { content } = await call(client, { name: 'visit', arguments: {} });
      await client.close();
      return content[0].text;
    };
    assert.deepEqual([await visit(), await visit()], ['1', '2'], 'the next instance goes on');
  });
}

test('without a session of the instance, with two, and where another session is named, there is none', async () => {
  assert.throws(() => session(), { code: 'no_session' });
  const sessiond = Sessiond.init({ ...world.options, label: 'one' });
  assert.throws(() => session({}), { code: 'no_session' }, 'nothing is claimed yet');
  const own = await sessiond.session();
  assert.equal(session({}).id, own.id);
  assert.throws(() => session(), { code: 'no_session' }, 'it could be a handler over HTTP');
  for (const extra of [{ requestInfo: { headers: {} } }, { http: {} }])
    assert.throws(() => session(extra), { code: 'no_session' }, 'it is one over HTTP');
  assert.throws(() => session({ sessionId: 'another' }), { code: 'no_session' });
  const other = Sessiond.init({ ...world.options, label: 'two' });
  await other.session();
  assert.throws(() => session({}), { code: 'no_session' }, 'which of them is not known');
  await other.release();
  assert.equal(session({}).id, own.id);
  await sessiond.release();
  assert.throws(() => session({}), { code: 'no_session' });
});

// What a session remembers of its server's lists, page by page.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Lists } from '../dist/durable/lists.js';

const TOOLS = [{ name: 'a', title: 'A' }, { name: 'b' }];
const declared = (...kinds) => ({
  capabilities: Object.fromEntries(kinds.map((kind) => [kind, { listChanged: true }])),
});
/** A session's state. */
const state = () => {
  const entries = new Map();
  return {
    get: async (key) => structuredClone(entries.get(key)),
    set: async (key, value) => void entries.set(key, structuredClone(value)),
  };
};

/** A client asks for a list in these pages. Whether its answers had to be recorded. */
async function ask(lists, session, method, member, pages) {
  const noted = [];
  for (const [at, page] of pages.entries()) {
    const params = at === 0 ? {} : { cursor: `page-${at}` };
    lists.asked(at, { jsonrpc: '2.0', id: at, method, params });
    const isLast = at === pages.length - 1;
    noted.push(lists.answered(at, { [member]: page, ...(isLast ? {} : { nextCursor: `page-${at + 1}` }) }));
  }
  if (noted.at(-1)) await lists.store(session);
  return noted;
}

/** What a new server's client is told, where the server lists these. `asked`: what it was asked for. */
async function told(session, result, listed, asked = []) {
  const lists = new Lists();
  lists.declare(result);
  await lists.compare(session, async (method, params) => {
    asked.push(method);
    const found = listed[method];
    return Array.isArray(found) ? found[Number(params.cursor ?? 0)] : found;
  });
  const messages = lists.changes().map(({ method }) => method);
  assert.deepEqual(lists.changes(), [], 'once');
  if (messages.length > 0) await lists.store(session);
  return messages;
}

test('a list that was read in pages is the same in another order and in other pages', async () => {
  const [session, result] = [state(), declared('tools')];
  const lists = new Lists();
  lists.declare(result);
  assert.deepEqual(await ask(lists, session, 'tools/list', 'tools', [[TOOLS[0]], [TOOLS[1]]]), [false, true]);
  assert.deepEqual(await ask(lists, session, 'tools/list', 'tools', [TOOLS]), [false], 'it is recorded');
  const turned = { tools: [TOOLS[1], { title: 'A', name: 'a' }] };
  assert.deepEqual(await told(session, result, { 'tools/list': turned }), []);
  const pages = [{ tools: TOOLS, nextCursor: '1' }, { tools: [{ name: 'c' }] }];
  assert.deepEqual(await told(session, result, { 'tools/list': pages }), [
    'notifications/tools/list_changed',
  ]);
  assert.deepEqual(await told(session, result, { 'tools/list': pages }), [], 'it was told');
});

test('half of a list, and a list that the client never asked for, are not compared', async () => {
  const [session, result] = [state(), declared('tools', 'prompts')];
  const lists = new Lists();
  lists.declare(result);
  lists.asked(1, { jsonrpc: '2.0', id: 1, method: 'tools/list' });
  assert.equal(lists.answered(1, { tools: [TOOLS[0]], nextCursor: 'more' }), false);
  // Another cursor than that of the next page.
  lists.asked(2, { jsonrpc: '2.0', id: 2, method: 'tools/list', params: { cursor: 'other' } });
  assert.equal(lists.answered(2, { tools: [TOOLS[1]] }), false);
  const asked = [];
  assert.deepEqual(await told(session, result, { 'tools/list': { tools: [] } }, asked), []);
  assert.deepEqual(asked, []);
});

test('what the server does not declare is neither recorded nor asked for', async () => {
  const session = state();
  const lists = new Lists();
  lists.declare(declared('prompts'));
  assert.deepEqual(await ask(lists, session, 'tools/list', 'tools', [TOOLS]), [false]);
  lists.asked('x', { jsonrpc: '2.0', id: 'x', method: 'constructor' });
  assert.equal(lists.answered('x', {}), false);
});

test('resources and their templates are told of by one notification; a list that fails by none', async () => {
  const [session, result] = [state(), declared('resources', 'tools')];
  const lists = new Lists();
  lists.declare(result);
  await ask(lists, session, 'resources/list', 'resources', [[{ uri: 'a' }]]);
  await ask(lists, session, 'resources/templates/list', 'resourceTemplates', [[{ uriTemplate: 'b' }]]);
  await ask(lists, session, 'tools/list', 'tools', [TOOLS]);
  const now = { 'resources/list': { resources: [] }, 'resources/templates/list': { resourceTemplates: [] } };
  assert.deepEqual(await told(session, result, now), ['notifications/resources/list_changed']);
});

test('a client that asks for a changed list itself is not told', async () => {
  const [session, result] = [state(), declared('tools')];
  const lists = new Lists();
  lists.declare(result);
  await ask(lists, session, 'tools/list', 'tools', [TOOLS]);
  const after = async () => {
    const next = new Lists();
    next.declare(result);
    await next.compare(session, async () => ({ tools: [] }));
    return next;
  };
  const failing = await after();
  failing.asked('x', { jsonrpc: '2.0', id: 'x', method: 'tools/list', params: {} });
  assert.equal(failing.answered('x', undefined), false);
  assert.equal(failing.changes().length, 1, 'its request has failed');
  const next = await after();
  assert.deepEqual(await ask(next, session, 'tools/list', 'tools', [[]]), [true]);
  assert.deepEqual(next.changes(), []);
  assert.deepEqual(await told(session, result, { 'tools/list': { tools: [] } }), []);
});

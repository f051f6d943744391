// The Tasks extension (SEP-2663), rule by rule, in its own words: a server on the official SDK's v2, asked over
// HTTP. What concerns processes that come and go is in extension-lives.test.mjs.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { kill, World } from './lib/daemon.mjs';
import { EXTENSION, Modern, named, serveTasks } from './lib/modern.mjs';

const MISSING = { extensions: { [EXTENSION]: {} } };
const UNKNOWN = ['none', '_'.repeat(22) + '.' + '_'.repeat(43)];

// MCP_SESSIOND_TEST_STORAGE: another storage in which they run, by its URL.
const { MCP_SESSIOND_TEST_STORAGE: given } = process.env;
for (const storage of given ? [given] : ['sqlite:', 'memory:'])
  describe(`SEP-2663 on ${storage.split(':')[0]}`, () => {
    let world, server, client, plain;
    let gates = 0;
    before(async () => {
      world = await new World({ 'storage.url': `"${storage}"` }).start();
      server = await serveTasks(world);
      client = new Modern(server.url);
      plain = client.with({ capabilities: {} });
    });
    after(async () => {
      await kill(server.child);
      await world.end();
    });

    /** A file that a tool waits for. */
    const gate = () => {
      const file = path.join(world.base, `gate-${++gates}`);
      return { file, open: () => writeFileSync(file, '') };
    };
    const begun = async (name, given) => (await client.call(name, given)).taskId;
    const keys = ({ inputRequests }) => Object.keys(inputRequests).sort();

    test('servers declare the extension in response to server/discover', async () => {
      const { capabilities } = await client.result('server/discover');
      assert.deepEqual(capabilities.extensions[EXTENSION], {});
    });

    test('a server MUST NOT return CreateTaskResult to a client that did not include the extension capability on its request, regardless of prior declarations', async () => {
      assert.equal((await client.call('add', { a: 1, b: 2 })).resultType, 'task');
      const direct = await plain.call('add', { a: 1, b: 2 });
      assert.deepEqual([direct.resultType, direct.content[0].text], ['complete', '3']);
      assert.equal(direct.taskId, undefined);
    });

    test('if a server is unable to service a request without returning CreateTaskResult, it MUST return an error with the code -32021, indicating the required extension', async () => {
      const { code, data, status } = await plain.error('tools/call', { name: 'only', arguments: {} });
      assert.deepEqual([code, status, data.requiredCapabilities], [-32021, 400, MISSING]);
      // It asks its client, which needs a task.
      const asks = await plain.error('tools/call', { name: 'greet', arguments: {} });
      assert.deepEqual([asks.code, asks.data.requiredCapabilities], [-32021, MISSING]);
    });

    test('servers MUST set resultType to "task" when returning a CreateTaskResult, and MUST NOT set it on other result types', async () => {
      const { file, open } = gate();
      const created = await client.call('structured', { gate: file });
      const { resultType, taskId, status, createdAt, lastUpdatedAt, ttlMs, pollIntervalMs, _meta, ...rest } =
        created;
      assert.deepEqual([resultType, status, ttlMs, pollIntervalMs], ['task', 'working', 3600_000, 1000]);
      assert.equal(new Date(createdAt).toISOString(), createdAt);
      assert.equal(new Date(lastUpdatedAt).toISOString(), lastUpdatedAt);
      assert.deepEqual(rest, {}, 'nothing of a tool result');
      assert.equal((await client.call('plain')).resultType, 'complete');
      assert.equal((await client.get(taskId)).resultType, 'complete');
      open();
      const { result } = await client.status(taskId, 'completed');
      assert.deepEqual(result.structuredContent, { n: 7 });
    });

    test('a server MUST NOT return CreateTaskResult until a tasks/get for the returned taskId would resolve', async () => {
      for (let n = 0; n < 20; n++) assert.equal((await client.get(await begun('slow'))).status, 'working');
    });

    test('servers SHOULD resolve all MRTR exchanges synchronously before responding with a CreateTaskResult', async () => {
      const asked = await client.call('confirm');
      assert.equal(asked.resultType, 'input_required');
      const { answer } = asked.inputRequests;
      assert.equal(answer.method, 'elicitation/create');
      const { taskId, resultType } = await client.call(
        'confirm',
        {},
        { inputResponses: { answer: named('Ann') } },
      );
      assert.equal(resultType, 'task');
      const [key] = keys(await client.status(taskId, 'input_required'));
      await client.update(taskId, { [key]: named('Bob') });
      assert.equal((await client.status(taskId, 'completed')).result.content[0].text, 'Ann and Bob');
    });

    test('if the status is working, the server MUST return a Task object with status working', async () => {
      const taskId = await begun('report', { gate: gate().file });
      const task = await client.until(taskId, ({ statusMessage }) => statusMessage === 'half');
      assert.deepEqual([task.taskId, task.status], [taskId, 'working']);
      assert.equal(task.inputRequests ?? task.result ?? task.error, undefined);
    });

    test('if the status is input_required, inputRequests MUST contain all outstanding requests', async () => {
      const taskId = await begun('greet', { times: 3 });
      const asked = await client.until(taskId, (task) => task.inputRequests && keys(task).length === 3);
      assert.deepEqual(keys(await client.get(taskId)), keys(asked), 'a read changes nothing');
      for (const request of Object.values(asked.inputRequests))
        assert.equal(request.method, 'elicitation/create');
      const [first, ...others] = keys(asked);
      // A server MAY accept a partial set of responses.
      await client.update(taskId, { [first]: named('Ann') });
      assert.deepEqual(keys(await client.get(taskId)), others);
      await client.cancel(taskId);
    });

    test('if the status is completed, the server MUST return a result field containing the final result of the task', async () => {
      const task = await client.status(await begun('add', { a: 1, b: 2 }), 'completed');
      assert.deepEqual(task.result, { content: [{ type: 'text', text: '3' }] });
      assert.equal(task.error ?? task.inputRequests, undefined);
    });

    test('the failed status MUST NOT be used to represent a tool result with isError: true, which is completed', async () => {
      const bad = await client.status(await begun('bad'), 'completed');
      assert.equal(bad.result.isError, true);
      const thrown = await client.status(await begun('fail', { how: 'other' }), 'completed');
      assert.deepEqual(thrown.result, { content: [{ type: 'text', text: 'no such city' }], isError: true });
    });

    test('if the status is failed, the error field MUST contain the JSON-RPC error; the response SHOULD include a statusMessage', async () => {
      const task = await client.status(await begun('fail', { how: 'rpc' }), 'failed');
      const { code, message, data } = task.error;
      assert.deepEqual([code, message, data], [-32603, 'API rate limit exceeded', { limit: 1 }]);
      assert.equal(task.statusMessage, 'API rate limit exceeded');
      assert.equal(task.result, undefined);
    });

    test('if the status is cancelled, the server MUST return a Task object with status cancelled; work that goes on changes nothing', async () => {
      const taskId = await begun('slow');
      const { resultType, _meta, ...rest } = await client.cancel(taskId);
      assert.deepEqual([resultType, rest], ['complete', {}], 'an empty acknowledgement');
      await server.out.next(/^aborted: the task is cancelled$/);
      const task = await client.get(taskId);
      assert.equal(task.status, 'cancelled');
      assert.equal(task.result, undefined);
      assert.equal((await client.cancel(taskId)).resultType, 'complete', 'it is acknowledged again');
    });

    test('the resultType field MUST be set to "complete" on GetTaskResult, UpdateTaskResult and CancelTaskResult; on success the server MUST acknowledge with an empty result', async () => {
      const taskId = await begun('greet');
      const asked = await client.status(taskId, 'input_required');
      assert.equal((await client.get(taskId)).resultType, 'complete');
      const updated = await client.update(taskId, { [keys(asked)[0]]: named('Ann') });
      const { resultType, _meta, ...rest } = updated;
      assert.deepEqual([resultType, rest], ['complete', {}]);
      assert.equal((await client.cancel(taskId)).resultType, 'complete');
    });

    test('ttlMs and pollIntervalMs MAY change over the lifetime of a task', async () => {
      const taskId = await begun('report', { gate: gate().file, pollMs: 70, ttlMs: 100_000 });
      const { ttlMs, pollIntervalMs } = await client.until(taskId, (task) => task.statusMessage === 'half');
      assert.deepEqual([ttlMs, pollIntervalMs], [100_000, 70]);
    });

    test('a message has as many bytes as the daemon takes, times are whole, and a time that is none is the error of the call', async () => {
      const message = 'ä'.repeat(3_000);
      const clipped = 'ä'.repeat(2_048);
      const times = { pollMs: 70.4, ttlMs: 99_999.6 };
      const created = await client.call('add', { gate: gate().file, message, ...times });
      assert.deepEqual(
        [created.resultType, created.statusMessage, created.pollIntervalMs, created.ttlMs],
        ['task', clipped, 70, 100_000],
      );
      const taskId = await begun('report', { gate: gate().file, message: `x${message}`, ...times });
      const told = await client.until(taskId, (task) => task.statusMessage);
      assert.deepEqual(
        [told.statusMessage, told.ttlMs, told.pollIntervalMs],
        [`x${clipped.slice(1)}`, 100_000, 70],
      );
      const { isError, content } = await client.call('add', { a: 1, b: 2, ttlMs: 0 });
      assert.equal(isError, true, 'no call that waits');
      assert.match(content[0].text, /ttl_ms/);
    });

    test('servers may discard the task after the TTL elapses: -32602', async () => {
      const { taskId, ttlMs } = await client.call('add', { gate: gate().file, ttlMs: 50 });
      assert.equal(ttlMs, 50);
      let answer;
      do answer = await client.answer('tasks/get', { taskId });
      while (answer.result);
      assert.equal(answer.error.code, -32602);
    });

    test('each request key in inputRequests MUST be unique over the lifetime of a single task', async () => {
      const taskId = await begun('greet');
      const first = await client.status(taskId, 'input_required');
      await client.update(taskId, { [keys(first)[0]]: named('Ann') });
      const second = await client.until(
        taskId,
        (task) => task.status === 'input_required' && task.statusMessage === 'asked',
      );
      assert.notDeepEqual(keys(second), keys(first));
      await client.update(taskId, { [keys(second)[0]]: named('Bob') });
      assert.equal((await client.status(taskId, 'completed')).result.content[0].text, 'Hello, Ann, Bob!');
    });

    test('a server SHOULD ignore any inputResponses mapped to a key that is not currently outstanding', async () => {
      const taskId = await begun('greet');
      const [key] = keys(await client.status(taskId, 'input_required'));
      const never = Object.fromEntries(Array.from({ length: 100 }, (_, n) => [`never-${n}`, named('Eve')]));
      await client.update(taskId, never);
      assert.deepEqual(keys(await client.get(taskId)), [key]);
      await client.update(taskId, { ...never, [key]: named('Ann') });
      await client.update(taskId, { [key]: named('Eve') });
      const next = await client.until(taskId, (task) => task.inputRequests && keys(task)[0] !== key);
      await client.update(taskId, { [keys(next)[0]]: named('Bob') });
      assert.equal((await client.status(taskId, 'completed')).result.content[0].text, 'Hello, Ann, Bob!');
      assert.equal((await client.update(taskId, { [key]: named('Eve') })).resultType, 'complete');
    });

    test('invalid or nonexistent taskId: servers MUST return -32602 for tasks/get, SHOULD for tasks/update and tasks/cancel', async () => {
      for (const taskId of UNKNOWN) {
        assert.equal((await client.error('tasks/get', { taskId })).code, -32602);
        assert.equal((await client.error('tasks/update', { taskId, inputResponses: {} })).code, -32602);
        assert.equal((await client.error('tasks/cancel', { taskId })).code, -32602);
      }
      assert.equal((await client.error('tasks/get')).code, -32602);
      const taskId = await begun('slow');
      assert.equal((await client.error('tasks/update', { taskId })).code, -32602);
    });

    test('servers MUST return -32021 for non-declaring clients issuing tasks/get, tasks/update and tasks/cancel requests', async () => {
      const taskId = await begun('slow');
      for (const method of ['tasks/get', 'tasks/update', 'tasks/cancel'])
        for (const capabilities of [{}, { tasks: { cancel: {} } }, { extensions: { other: {} } }]) {
          const other = client.with({ capabilities });
          const { code, data } = await other.error(method, { taskId, inputResponses: {} });
          assert.deepEqual([code, data.requiredCapabilities], [-32021, MISSING]);
        }
      assert.equal((await client.get(taskId)).status, 'working');
    });

    test('the server MUST reject a request whose Mcp-Name header is not params.taskId', async () => {
      const taskId = await begun('slow');
      const headers = { 'mcp-name': 'another' };
      const { status, error } = await client.answer('tasks/get', { taskId }, { headers });
      assert.deepEqual([status, error.code], [400, -32020]);
    });

    test('clients calling tasks/result MUST receive -32601; servers MUST ignore the task parameter, and MUST NOT advertise the legacy capabilities', async () => {
      const taskId = await begun('slow');
      for (const method of ['tasks/result', 'tasks/list'])
        assert.equal((await client.error(method, { taskId })).code, -32601);
      const params = { name: 'add', arguments: { a: 1, b: 2 }, task: { ttl: 1 } };
      assert.equal((await plain.result('tools/call', params)).content[0].text, '3');
      assert.equal((await client.result('tools/call', params)).ttlMs, 3600_000);
      const { capabilities } = await client.result('server/discover');
      assert.equal(capabilities.tasks, undefined);
    });

    test('servers MUST generate task ids with sufficient entropy', async () => {
      const ids = await Promise.all(Array.from({ length: 20 }, () => begun('add', { a: 1, b: 1 })));
      const random = ids.map((id) => id.split('.'));
      for (const part of [0, 1]) assert.equal(new Set(random.map((parts) => parts[part])).size, 20);
      for (const [, secret] of random) assert.ok(secret.length >= 43, 'the daemon has drawn 256 bits of it');
    });

    test('servers MUST perform authorization checks on each task-related request: another caller is told what is told of a task that is not there', async () => {
      const ann = client.with({ token: 'ann' });
      const { taskId } = await ann.call('greet');
      await ann.status(taskId, 'input_required');
      const [key] = keys(await ann.get(taskId));
      for (const other of [client, client.with({ token: 'eve' })]) {
        for (const method of ['tasks/get', 'tasks/update', 'tasks/cancel']) {
          const inputResponses = { [key]: named('Eve') };
          const refused = await other.error(method, { taskId, inputResponses });
          assert.deepEqual(refused, await other.error(method, { taskId: UNKNOWN[1], inputResponses }));
        }
        const { next, stop } = await other.listen({ taskIds: [taskId] });
        assert.equal((await next()).params.notifications.taskIds, undefined);
        stop();
      }
      assert.deepEqual(keys(await ann.get(taskId)), [key]);
      // A task that was begun without a token belongs to nobody who has one.
      const nobodys = (await client.call('greet')).taskId;
      const [open] = keys(await client.status(nobodys, 'input_required'));
      for (const method of ['tasks/get', 'tasks/update', 'tasks/cancel']) {
        const inputResponses = { [open]: named('Ann') };
        const refused = await ann.error(method, { taskId: nobodys, inputResponses });
        assert.deepEqual(refused, await ann.error(method, { taskId: UNKNOWN[1], inputResponses }));
      }
      const { next, stop } = await ann.listen({ taskIds: [nobodys] });
      assert.equal((await next()).params.notifications.taskIds, undefined);
      stop();
      assert.deepEqual(keys(await client.get(nobodys)), [open]);
    });
  });

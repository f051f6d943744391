// The contents of a session, in TypeScript's library: contents.mjs write|answer|read SESSION …; see `run`.
import { Sessions } from '../../client/typescript/dist/index.js';

const [verb, id, ...rest] = process.argv.slice(2);
const VALUE = { text: 'é☃\u0000"', list: [1, 2.5, null, true, {}] };
const sessions = Sessions.ofService('languages');

async function write(who) {
  const session = await sessions.create({ id, status: { is: 'ready' }, metadata: { from: who } });
  await session.write([
    { key: 'whole', value: { ...VALUE, from: who } },
    { key: 'removed', value: 1 },
    { key: 'short', value: 'soon gone', expiresMs: 3_600_000 },
  ]);
  await session.remove('removed');
  const stream = await session.openStream('call-1', { openedBy: 1 });
  await stream.append({ method: 'notifications/progress', params: VALUE });
  await stream.append({ id: 1, result: who });
  await stream.close();
  await session.standalone.append({ method: 'notifications/message', params: who });
  const { task: failed } = await session.createTask({ message: 'will fail' });
  await failed.fail({ code: -1, message: who });
  const { task, view } = await session.createTask({ ttlMs: 3_600_000, pollMs: 100, message: who });
  let now = await task.update({ ask: { name: { method: 'elicitation/create', params: VALUE } } });
  console.log(view.id);
  while (now.status === 'input_required') now = await task.changed(now.version, 25_000);
  await task.complete({ answer: now.inputs[0].response });
}

async function read() {
  const session = await sessions.open(id);
  const { metadata } = await session.view();
  const entries = await session.entries((await session.keys()).map(({ key }) => key));
  const streams = {};
  for (const { id: stream, closed } of await session.streams()) {
    const { events } = await session.replayAll({ stream });
    streams[stream] = { closed, messages: events.map(({ json }) => JSON.parse(json)) };
  }
  const tasks = {};
  for (const { id: task } of await session.tasks()) {
    const { status, message, ttlMs, pollMs, result, error } = await session.task(task).view();
    tasks[task] = { status, message, ttlMs, pollMs, result, error };
  }
  const state = Object.fromEntries(entries.map(({ key, value }) => [key, value]));
  const { current } = await sessions.secret();
  console.log(JSON.stringify({ metadata, state, streams, tasks, secret: Buffer.from(current).toString('hex') }));
}

switch (verb) {
  case 'write':
    await write('TypeScript');
    break;
  case 'answer':
    await (await sessions.open(id)).task(rest[0]).update({ answer: { name: 'TypeScript' } });
    break;
  case 'read':
    await read();
}
process.exit();

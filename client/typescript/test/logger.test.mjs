// A logger that throws is no trouble of the server's: nothing rejects, and nothing is left that nobody catches.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { eventBus, requestStateCodec, SessionEventStore, Sessions } from '../dist/index.js';
import { World } from './lib/daemon.mjs';

const uncaught = [];
const caught = (error) => uncaught.push(error);
let none;
/** How often it was called. */
let said = 0;
const log = () => {
  said++;
  throw new Error('the logger is broken');
};
before(() => {
  process.on('unhandledRejection', caught);
  none = new World();
});
after(async () => {
  process.off('unhandledRejection', caught);
  await none.end();
});
/** What happens where the daemon is away and the logger throws, and that it was called. */
async function says(work) {
  const before = said;
  await work({ service: 'logger', ...none.options, timeoutMs: 50, log });
  assert.ok(said > before, 'the logger was called');
  // Rejections that nobody catches are told of after the tasks of a turn.
  await new Promise(setImmediate);
  assert.deepEqual(uncaught, []);
}

test('the codec of requestState signs and verifies', () =>
  says(async (options) => {
    const create = ({ key }) => ({
      mint: async (payload) => `${payload} ${key.length}`,
      verify: async (state) => {
        if (!state.endsWith(' 32')) throw new Error('mac');
        return state.split(' ')[0];
      },
    });
    const codec = requestStateCodec(create, options);
    assert.equal(await codec.verify(await codec.mint('one')), 'one');
    await assert.rejects(codec.verify('forged'), { message: 'mac' });
  }));

test('a bus tells its own listeners, also where one of them throws', () =>
  says(async (options) => {
    const bus = eventBus(options);
    const heard = [];
    const stops = [];
    const both = new Promise((resolve) => {
      stops.push(
        bus.subscribe(() => {
          throw new Error('a listener');
        }),
      );
      stops.push(bus.subscribe((event) => heard.push(event) === 2 && resolve()));
    });
    bus.publish('one');
    bus.publish('two');
    await both;
    assert.deepEqual(heard, ['one', 'two']);
    for (const stop of stops) stop();
  }));

test('an event store answers without an id', () =>
  says(async ({ service, log, ...options }) => {
    const session = Sessions.ofService(service, options).at('none');
    const store = new SessionEventStore(session, { log });
    assert.equal(await store.storeEvent('1', { jsonrpc: '2.0', method: 'notifications/message' }), '');
  }));

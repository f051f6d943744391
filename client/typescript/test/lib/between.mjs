// What stands between a client and the daemon, and sees each call.
import { once } from 'node:events';
import { mkdtempSync } from 'node:fs';
import net from 'node:net';
import path from 'node:path';

/** Bytes of the greeting, each way. */
const HELLO = 32;

/**
 * A directory whose socket leads to the daemon of `directory`, or of the world. `before(method, params)` is asked
 * before a call is handed on; where it says `break`, the connection is broken in place of that; where it says `lose`,
 * as soon as the daemon has answered, whose answer is lost. `{ until }`: it is handed on after that, and later ones may
 * overtake it.
 */
export async function between(world, before, to = world.directory) {
  const directory = mkdtempSync(path.join(world.base, 'between-'));
  const server = net.createServer((near) => {
    const far = net.connect(path.join(to, 'daemon.sock'));
    const end = () => {
      near.destroy();
      far.destroy();
    };
    for (const side of [near, far]) side.on('error', end).on('close', end);
    far.pipe(near);
    void pass(near, far, before).then(end, end);
  });
  await new Promise((resolve) => server.listen(path.join(directory, 'daemon.sock'), resolve));
  return { options: { directory, start: false }, close: () => server.close() };
}

async function pass(near, far, before) {
  let bytes = Buffer.alloc(0);
  let greeted = false;
  for await (const part of near) {
    bytes = Buffer.concat([bytes, part]);
    for (;;) {
      const length = greeted ? 4 + (bytes.length >= 4 ? bytes.readUInt32BE(0) : Infinity) : HELLO;
      if (bytes.length < length) break;
      const frame = bytes.subarray(0, length);
      const { method, params } = greeted ? JSON.parse(frame.subarray(4)) : {};
      const what = greeted && (await before(method, params));
      greeted = true;
      if (what === 'break') return;
      if (what === 'lose') far.unpipe(near).resume();
      if (what?.until) void what.until.then(() => far.write(frame));
      else far.write(frame);
      if (what === 'lose') return void (await once(far, 'data'));
      bytes = bytes.subarray(length);
    }
  }
}

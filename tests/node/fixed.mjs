// For a process that has to say the same bytes at every run: node --import ./fixed.mjs SERVER.js
//
// The clock stands still, files have no times, and what is random comes from a counter. Two runs of one server can then
// be compared without forgiving them anything. Timers run as ever.
import crypto from 'node:crypto';
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';

const now = Date.UTC(2026, 0, 2, 3, 4, 5);

globalThis.Date = class extends Date {
  constructor(...args) {
    super(...(args.length ? args : [now]));
  }

  static now() {
    return now;
  }
};

let drawn = 0;
Math.random = () => (++drawn * 0.6180339887498949) % 1;
crypto.randomUUID = () => `00000000-0000-4000-8000-${String(++drawn).padStart(12, '0')}`;
globalThis.crypto.randomUUID = crypto.randomUUID;
// Without a callback only, which is all that the servers use.
crypto.randomBytes = (size) => crypto.createHash('shake128', { outputLength: size }).update(String(++drawn)).digest();

for (const name of ['stat', 'lstat']) {
  const real = fs.promises[name];
  fs.promises[name] = async (...args) => {
    const stats = await real(...args);
    for (const time of ['atime', 'mtime', 'ctime', 'birthtime']) stats[time] = new Date();
    return stats;
  };
}
syncBuiltinESMExports();

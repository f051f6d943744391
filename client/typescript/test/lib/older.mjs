// A daemon of before.
import { spawn } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import path from 'node:path';
import { kill, lines } from './daemon.mjs';

const PROGRAM = path.resolve(import.meta.dirname, '../../../../tests/python/older.py');

/** A directory in which the daemon of a world passes for an older one, and the calls that it has got. */
export async function older(world, features, t) {
  const directory = path.join(mkdtempSync(path.join(world.base, 'older-')), 'd');
  const child = spawn('python3', ['-I', '-S', PROGRAM, directory, world.directory, String(features)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.after(() => kill(child));
  const out = lines(child.stdout);
  await out.next(/^ready$/);
  const calls = async (last) => {
    const found = [];
    while (found.at(-1) !== last) found.push((await out.next(/.*/))[0]);
    return found;
  };
  return { directory, calls };
}

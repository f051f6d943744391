// Bun and Deno run the client's core tests, and those of the Tasks extension with servers of their own. tests/conformance/tasks has its rules,
// tests/languages version 1's three calls: on both, too.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { before, test } from 'node:test';
import { binary } from './lib/daemon.mjs';

const folder = path.join(import.meta.dirname, 'runtimes');
const bin = (name) => path.join(folder, 'node_modules/.bin', name);
const FILES = ['client', 'tasks', 'three-calls', 'event-bus', 'extension-lives'];
/** How each runs a file, and what it says of so many tests that have passed. */
const RUNTIMES = {
  bun: { args: ['test', '--timeout', '60000'], passed: /^ *([1-9]\d*) pass$/m, failed: /^ *0 fail$/m },
  deno: { args: ['test', '-A', '--no-check'], passed: /\| ([1-9]\d*) passed/, failed: /\| 0 failed/ },
};

before(() => {
  if (existsSync(bin('bun')) && existsSync(bin('deno'))) return;
  const npm = ['ci', '--no-audit', '--no-fund', '--silent'];
  const { status } = spawnSync('npm', npm, { cwd: folder, stdio: 'inherit' });
  assert.equal(status, 0, `Bun and Deno can't be had: \`npm ${npm.join(' ')}\` in ${folder} failed`);
});

for (const [runtime, { args, passed, failed }] of Object.entries(RUNTIMES))
  for (const file of FILES)
    test(`${runtime}: ${file}.test.mjs`, { timeout: 120_000 }, async () => {
      const env = { ...process.env, MCP_SESSIOND_BIN: binary, NO_COLOR: '1' };
      // A test runner that finds this one's settings takes itself for a part of it.
      delete env.NODE_TEST_CONTEXT;
      const child = spawn(bin(runtime), [...args, `./test/${file}.test.mjs`], {
        cwd: path.dirname(import.meta.dirname),
        env,
        stdio: ['ignore', 'pipe', 'pipe'],
      });
      let said = '';
      for (const stream of [child.stdout, child.stderr]) stream.on('data', (bytes) => (said += bytes));
      const code = await new Promise((resolve) => child.once('close', resolve));
      assert.equal(code, 0, said);
      assert.match(said, passed);
      assert.match(said, failed);
    });

// The codes of errors are those of the protocol's page.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { SessiondError } from '../dist/index.js';

const read = (file) => readFileSync(path.join(import.meta.dirname, file), 'utf8');

test('every code of the protocol has its status, and there are no others', () => {
  const [, section] = read('../../../proto/PROTOCOL.md').split('\n## Errors\n');
  const rows = [...section.split('\n## ')[0].matchAll(/^\| `(\w+)` \| (\d+) \|/gm)];
  const told = Object.fromEntries(rows.map(([, code, status]) => [code, Number(status)]));
  assert.ok(Object.keys(told).length > 20);
  for (const [code, status] of Object.entries(told)) {
    assert.equal(new SessiondError(code, '').httpStatus, status, code);
  }
  const [, union] = read('../src/errors.ts').match(/type RefusalCode =([^;]*);/);
  const known = [...union.matchAll(/'(\w+)'/g)].map(([, code]) => code);
  assert.deepEqual(known.sort(), Object.keys(told).sort());
});

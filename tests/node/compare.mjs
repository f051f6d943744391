// Compares two transcripts byte for byte: node compare.mjs ONE OTHER
//
// Nothing is forgiven: fixed.mjs and the choice of what is asked see to it that two runs of one server say the same,
// in the same order. Only the order between the two directions is not looked at, since it is that of two pipes. Prints
// what there is in the first, as one line of JSON; where they differ a diff goes to standard error, and the code is 1.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';

const names = process.argv.slice(2);
if (names.length !== 2) {
  console.error('usage: node compare.mjs ONE OTHER');
  process.exit(64);
}

// Latin-1 keeps every byte what it is.
const transcripts = names.map((name) => fs.readFileSync(name, 'latin1').split('\n').slice(0, -1));
const direction = (lines, mark) => lines.filter((line) => line.startsWith(mark)).map((line) => `${line}\n`).join('');

let same = true;
const scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'compare-'));
for (const [mark, who] of [['>', 'client'], ['<', 'server']]) {
  const [one, other] = transcripts.map((lines) => direction(lines, mark));
  if (one === other) continue;
  same = false;
  const files = [one, other].map((text, n) => {
    const file = path.join(scratch, `${who}-${n + 1}`);
    fs.writeFileSync(file, text, 'latin1');
    return file;
  });
  spawnSync('diff', ['-u', ...files], { stdio: ['ignore', 2, 2] });
}
fs.rmSync(scratch, { recursive: true });

function parse(line) {
  try {
    return { from: line[0], ...JSON.parse(Buffer.from(line.slice(2), 'latin1')) };
  } catch {
    // A server may write what is no message, and it was compared all the same.
    return {};
  }
}

const parsed = transcripts[0].map(parse);
const listed = (key) => [key, Math.max(0, ...parsed.map(({ result }) => result?.[key]?.length ?? 0))];
const lists = Object.fromEntries(['tools', 'prompts', 'resources', 'resourceTemplates'].map(listed));
const said = (mark) => parsed.filter(({ from }) => from === mark).length;
const methods = {};
for (const { from, method } of parsed.filter((message) => message.method)) {
  methods[`${from} ${method}`] = (methods[`${from} ${method}`] ?? 0) + 1;
}
console.log(JSON.stringify({ same, ...lists, messages: { client: said('>'), server: said('<') }, methods }));
process.exitCode = same ? 0 : 1;

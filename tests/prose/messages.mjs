// The sentences in the code that people meet: string literals of three words or more, except those of tests and of panics. X stands
// for what is filled in.

import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

const FOLDERS = ['cli/src', 'proxy', 'daemon', 'process', 'proto/src', 'client/rust/src', 'client/c/src'];
// What only tests or their models say, and what programs read.
const NOT_HERE = ['tests', '__fuzz__', 'fuzz', 'model', 'golden.rs', 'fuzz.rs', 'tests.rs', 'model.rs', 'commands_in_docs.rs', 'programs.rs', 'schema.rs', 'statements.rs'];
const LITERAL = /\/\/[^\n]*|r(#*)"(.*?)"\1|"((?:\\.|[^"\\])*)"|'(?:\\.|[^'\\])'/gs;
// A panic is a fault of ours, and a `reason` is for whoever reads the code.
const NOT_SAID = /(?:\bexpect(?:_err)?\(|\b(?:panic|assert\w*|debug_assert\w*|unreachable|todo)!\((?:[^;"]|\n)*|\breason\s*=\s*)\s*$/;

function files(folder, root) {
  return readdirSync(join(root, folder), { withFileTypes: true }).flatMap((entry) => {
    if (NOT_HERE.includes(entry.name)) return [];
    const path = `${folder}/${entry.name}`;
    return entry.isDirectory() ? files(path, root) : entry.name.endsWith('.rs') ? [path] : [];
  });
}

/** The sentences of a source text, each with its line. */
export function sentences(source) {
  const end = source.search(/#\[cfg\(test\)\]\s+(?:pub\(crate\) )?mod \w+ \{/);
  const text = end < 0 ? source : source.slice(0, end);
  const found = [];
  for (const { 0: whole, 2: raw, 3: usual, index } of text.matchAll(LITERAL)) {
    const said = (raw ?? usual)?.replace(/\\\n\s*/g, '').replace(/\\[nr]/g, '\n').replace(/\\(.)/g, '$1').replace(/\{[^{}]*\}/g, 'X');
    if (said === undefined || whole.startsWith('//') || said.split(/\s+/).length < 3) continue;
    if (/[;{}]\s*$|\b(?:SELECT|INSERT|DELETE FROM|UPDATE)\b/.test(said) || NOT_SAID.test(text.slice(Math.max(0, index - 200), index))) continue;
    found.push({ line: text.slice(0, index).split('\n').length, said });
  }
  return found;
}

/** Those of all code: where each is, and what it says. */
export function messages(root) {
  return FOLDERS.flatMap((folder) => files(folder, root)).flatMap((path) =>
    sentences(readFileSync(join(root, path), 'utf8')).map(({ line, said }) => ({ where: `${path}:${line}`, said })));
}

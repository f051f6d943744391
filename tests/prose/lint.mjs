// Looks through the pages and what `--help` says, with the rules of words.yml, user-words.yml and length.mjs. See `run`.

import { execFileSync } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { TextlintKernel } from '@textlint/kernel';
import markdown from '@textlint/textlint-plugin-markdown';
import plain from '@textlint/textlint-plugin-text';
import prh from 'textlint-rule-prh';
import terminology from 'textlint-rule-terminology';
import length from './length.mjs';
import { paragraphs, subcommands } from './help.mjs';
import { messages } from './messages.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, '..', '..');

const PAGES = ['README.md', 'CONTRIBUTING.md', 'SECURITY.md', 'ARCHITECTURE.md', 'CHANGELOG.md', 'packaging/README.md', 'packaging/about.md', 'proto/PROTOCOL.md'];
const FOLDERS = ['docs', 'client'];

const words = { rulePaths: [join(here, 'words.yml')], checkLink: true, checkBlockQuote: true, checkEmphasis: true };
// What the code calls a front, users know as a wrapper; the glossary says so. These pages are about the code.
const CODE = ['ARCHITECTURE.md', 'CHANGELOG.md', 'proto/PROTOCOL.md', 'docs/glossary.md', 'docs/benchmarks.md'];
const userWords = { ...words, rulePaths: [join(here, 'user-words.yml')] };
const names = {
  // Spellings that this rule wants otherwise. We write "id" as MCP does, curl, VS Code and README as their own pages do, and
  // "file name" as POSIX does. "json" is a type of the protocol, and what "comes back ends" is no backend.
  exclude: [
    ...['ID', "id['’]?s", 'cURL', 'JSON', 'OK', 'V[ -]?S[ -]?Code', 'readme(s)?'],
    ...['file[- ]name(s)?', 'host[- ]name(s)?', 'blank line(s)?', 'back[- ]end(\\w*)'],
  ],
};
const everywhere = [
  { ruleId: 'words', rule: prh.default ?? prh, options: words },
  { ruleId: 'length', rule: length },
];
const inPages = { ruleId: 'names', rule: terminology.default ?? terminology, options: names };
const forUsers = { ruleId: 'glossary', rule: prh.default ?? prh, options: userWords };
const plugins = [
  { pluginId: 'markdown', plugin: markdown.default ?? markdown },
  { pluginId: 'text', plugin: plain.default ?? plain },
];
const kernel = new TextlintKernel();

/** What the rules find in a text: `where: rule: message`, in the order of the text. */
async function faults(name, text, ext, isMessage = false) {
  const rules = [...everywhere];
  // The help has lists of fields of JSON, such as "url", that are no names.
  if (ext === '.md' && !isMessage) rules.push(inPages);
  if (!CODE.includes(name)) rules.push(forUsers);
  const { messages } = await kernel.lintText(text, { filePath: join(root, name), ext, plugins, rules });
  const at = ({ line, column }) => (ext === '.md' && !isMessage ? `${name}:${line}:${column}` : name);
  return messages.map((message) => `${at(message)}: ${message.ruleId}: ${message.message.replace(/\n/g, ' ')}`);
}

function pages() {
  const below = (folder) =>
    readdirSync(join(root, folder), { withFileTypes: true }).flatMap((entry) => {
      if (entry.name === 'node_modules' || entry.name.startsWith('.')) return [];
      const path = `${folder}/${entry.name}`;
      if (folder === 'docs') return entry.name.endsWith('.md') ? [path] : [];
      return entry.isDirectory() ? [`${path}/README.md`] : [];
    });
  return [...PAGES, ...FOLDERS.flatMap(below)];
}

/** `--help` of the executable and of all its verbs, by their names. */
function helps(executable) {
  const found = new Map();
  const ask = (verbs) => {
    const text = execFileSync(executable, [...verbs, '--help'], { encoding: 'utf8', timeout: 30_000 });
    found.set(['mcp-sessiond', ...verbs, '--help'].join(' '), text);
    for (const verb of subcommands(text)) ask([...verbs, verb]);
  };
  ask([]);
  return found;
}

/** Each rule has to find its faults: faults.md names it in the comment before each, faults.help has three. */
async function selfCheck() {
  const text = readFileSync(join(here, 'faults.md'), 'utf8');
  const found = await faults('tests/prose/faults.md', text, '.md');
  const missing = [];
  for (const file of ['words.yml', 'user-words.yml']) {
    const untried = readFileSync(join(here, file), 'utf8').match(/^ {2}- (?!.*\bspecs: \[\{).*$/gm) ?? [];
    missing.push(...untried.map((rule) => `tests/prose/${file}: a rule without an example: ${rule.trim()}`));
  }
  // Each part is a comment with the rule's name, and its fault.
  const parts = text.split(/^<!-- (\w+) -->$/m).slice(1);
  const wanted = parts.filter((_, index) => index % 2 === 0);
  const rules = found.map((fault) => fault.split(': ')[1]);
  if (rules.join() !== wanted.join()) missing.push(`tests/prose/faults.md: the rules did not find ${wanted}, but:`, ...found);
  const help = paragraphs(readFileSync(join(here, 'faults.help'), 'utf8'));
  const inHelp = await faults('faults.help', help.join('\n\n'), '.txt');
  if (inHelp.length !== 3) missing.push(`tests/prose/faults.help: ${inHelp.length} faults instead of 3:`, ...inHelp);
  return missing;
}

const executable = process.env.MCP_SESSIOND_BIN;
const found = await selfCheck();
for (const page of pages()) found.push(...(await faults(page, readFileSync(join(root, page), 'utf8'), '.md')));
const verbs = helps(executable);
if (verbs.size < 20) found.push(`${executable}: only ${verbs.size} verbs have a --help`);
for (const [name, text] of verbs) found.push(...(await faults(name, paragraphs(text).join('\n\n'), '.txt')));

const said = messages(root);
if (said.length < 1000) found.push(`only ${said.length} messages were found in the code`);
for (const { where, said: text } of said) found.push(...(await faults(where, text, '.md', true)));

for (const fault of found) console.log(fault);
console.log(`${pages().length} pages, ${verbs.size} times --help and ${said.length} messages: ${found.length} faults`);
process.exit(found.length ? 1 : 0);

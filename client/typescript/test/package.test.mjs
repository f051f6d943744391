// What a reader does: the package, packed and installed into an empty folder, and its examples, by the
// commands of the README.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { kill, lines, World } from './lib/daemon.mjs';
import { Modern, named } from './lib/modern.mjs';
import { Wire } from './lib/server.mjs';

const root = path.resolve(import.meta.dirname, '..');
const readme = readFileSync(path.join(root, 'README.md'), 'utf8');
let world, folder;

const npm = (...words) =>
  execFileSync('npm', [...words, '--silent', '--no-audit', '--no-fund', '--prefer-offline'], { cwd: folder });

before(() => {
  // No daemon runs: the package starts one.
  world = new World();
  folder = mkdtempSync(path.join(tmpdir(), 'ts-package-'));
  const packed = execFileSync('npm', ['pack', '--silent', '--ignore-scripts', '--pack-destination', folder], {
    cwd: root,
  });
  writeFileSync(path.join(folder, 'package.json'), '{"private": true}');
  npm(
    'install',
    `./${packed.toString().trim()}`,
    '@modelcontextprotocol/sdk@1.32.2',
    '@modelcontextprotocol/server@2.4.0',
    '@modelcontextprotocol/node@2.1.2',
  );
});
after(() => {
  rmSync(folder, { recursive: true, force: true });
  execFileSync(world.env.MCP_SESSIOND_BIN, ['stop', '--all'], { env: world.env, stdio: 'ignore' });
  return world.end();
});

/** Runs a command that the README has, word by word. */
function run(command, ...further) {
  assert.ok(readme.includes(command), `README.md does not have: ${command}`);
  const [program, ...words] = command.split(' ');
  return spawn(program, [...words, ...further], {
    cwd: folder,
    env: world.env,
    stdio: ['pipe', 'pipe', 'inherit'],
  });
}

test('the package has what it should, and nothing depends on anything', () => {
  const installed = path.join(folder, 'node_modules/mcp-sessiond-client');
  const { dependencies } = JSON.parse(readFileSync(path.join(installed, 'package.json'), 'utf8'));
  assert.equal(dependencies, undefined);
  for (const file of ['dist/index.js', 'dist/index.d.ts', 'README.md', 'LICENSE'])
    readFileSync(path.join(installed, file));
});

test('an HTTP server that is killed and started again goes on counting', async () => {
  const command = 'node node_modules/mcp-sessiond-client/examples/http-server.mjs 8000';
  const start = (port) => run(command.slice(0, -5), port);
  assert.ok(readme.includes(command));
  const first = start('0');
  const [, url] = await lines(first.stdout).next(/^listening at (.*)$/);
  const client = await new Wire(url).begin();
  assert.equal(await client.text('visit'), 'visit 1');
  await kill(first);
  const second = start(new URL(url).port);
  await lines(second.stdout).next(/^listening/);
  assert.equal(await client.text('visit'), 'visit 2');
  await kill(second);
});

test('a server with tasks is killed: what has ended has its result, and what was under way has failed', async () => {
  const command = 'node node_modules/mcp-sessiond-client/examples/tasks-server.mjs 8000';
  assert.ok(readme.includes(command));
  const start = (port) => run(command.slice(0, -5), port);
  const first = start('0');
  const [, url] = await lines(first.stdout).next(/^listening at (.*)$/);
  const client = new Modern(url);
  const { taskId } = await client.call('greet');
  const { inputRequests } = await client.status(taskId, 'input_required');
  await client.update(taskId, { [Object.keys(inputRequests)[0]]: named('Ann') });
  await client.status(taskId, 'completed');
  const lost = await client.call('greet');
  await kill(first);
  const second = start(new URL(url).port);
  await lines(second.stdout).next(/^listening/);
  assert.equal((await client.get(taskId)).result.content[0].text, 'Hello, Ann!');
  assert.deepEqual((await client.status(lost.taskId, 'failed')).error.data, { outcome: 'unknown' });
  await kill(second);
});

test('a server on stdio that is killed and started again goes on counting', async () => {
  const visit = async () => {
    const server = run('node node_modules/mcp-sessiond-client/examples/stdio-server.mjs');
    const out = lines(server.stdout);
    const ask = async (id, method, params) => {
      server.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`);
      return JSON.parse((await out.next(new RegExp(`"id":${id}\\b.*|.*"id":${id}}$`))).input).result;
    };
    const clientInfo = { name: 'test', version: '1.0.0' };
    await ask(1, 'initialize', { protocolVersion: '2025-06-18', capabilities: {}, clientInfo });
    server.stdin.write('{"jsonrpc":"2.0","method":"notifications/initialized"}\n');
    const { content } = await ask(2, 'tools/call', { name: 'visit', arguments: {} });
    await kill(server);
    return content[0].text;
  };
  assert.equal(await visit(), 'visit 1');
  assert.equal(await visit(), 'visit 2');
});

test('state and streams are there in the next process', async () => {
  const command = 'node node_modules/mcp-sessiond-client/examples/state.mjs';
  const told = async (...further) => {
    const out = lines(run(command, ...further).stdout);
    const [, id] = await out.next(/^session (.*)$/);
    return { id, all: out.all };
  };
  const { id } = await told();
  assert.deepEqual((await told(id)).all, ['1: run 1', '2: run 2', `session ${id}`]);
});

// A server on the official SDK, and a client of HTTP that shows every byte that matters.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import path from 'node:path';
import { lines } from './daemon.mjs';

/** `sdks/server.mjs`, of a version of the SDK. `options`: of `durable`. */
export function serveIn(world, version, port = 0, framework = 'http', options = {}) {
  return serveFile(world, 'server.mjs', [version, port, framework, JSON.stringify(options)]);
}

/** A server in the folder `sdks`, which says where it listens. */
export async function serveFile(world, file, given) {
  const script = path.join(import.meta.dirname, '../sdks', file);
  const child = spawn(process.execPath, [script, ...given.map(String)], {
    env: world.env,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const out = lines(child.stdout);
  const [, url] = await out.next(/^listening at (.*)$/);
  return { child, out, url, port: new URL(url).port };
}

/** The events of a response, one after the other, each as its fields. */
export async function* events(response) {
  let text = '';
  for await (const part of response.body.pipeThrough(new TextDecoderStream())) {
    text += part;
    for (let end; (end = text.indexOf('\n\n')) >= 0; text = text.slice(end + 2)) {
      const fields = text
        .slice(0, end)
        .split('\n')
        .map((line) => line.match(/^(\w*): ?([^]*)$/)?.slice(1) ?? []);
      yield Object.fromEntries(fields);
    }
  }
}

/**
 * Messages of a response, until it ends, each with its event's id; comments and events without data left out.
 */
export async function* messages(response) {
  for await (const { id, data } of events(response)) if (data) yield { ...JSON.parse(data), event: id };
}

/** All that an async generator gives. */
export async function all(generator) {
  const found = [];
  for await (const one of generator) found.push(one);
  return found;
}

/** A client without any library. */
export class Wire {
  /** The id of the last request. */
  id = 0;
  headers = {};

  constructor(url, version = '2025-11-25') {
    this.url = url;
    this.version = version;
  }

  request(method, { body, headers = {}, signal } = {}) {
    const given = {
      accept: 'application/json, text/event-stream',
      ...(body ? { 'content-type': 'application/json' } : {}),
      ...(this.session ? { 'mcp-session-id': this.session, 'mcp-protocol-version': this.version } : {}),
      ...this.headers,
      ...headers,
    };
    return fetch(this.url, { method, headers: given, signal, body: body && JSON.stringify(body) });
  }

  post(method, params, options = {}) {
    return this.request('POST', { ...options, body: { jsonrpc: '2.0', id: ++this.id, method, params } });
  }

  notify(method, params) {
    return this.request('POST', { body: { jsonrpc: '2.0', method, params } });
  }

  get(lastEventId, options = {}) {
    const headers = lastEventId ? { 'last-event-id': lastEventId } : {};
    return this.request('GET', { ...options, headers: { ...headers, ...options.headers } });
  }

  initialize() {
    const clientInfo = { name: 'wire', version: '1.0.0' };
    return this.post('initialize', { protocolVersion: this.version, capabilities: {}, clientInfo });
  }

  /** Begins a session. */
  async begin() {
    const response = await this.initialize();
    assert.equal(response.status, 200);
    this.session = response.headers.get('mcp-session-id');
    await all(events(response));
    assert.equal((await this.notify('notifications/initialized')).status, 202);
    return this;
  }

  call(name, given = {}, options) {
    return this.post('tools/call', { name, arguments: given, _meta: { progressToken: 'p' } }, options);
  }

  /** The text that a tool answers. */
  async text(name, given) {
    const response = await this.call(name, given);
    assert.equal(response.status, 200, await (response.status === 200 ? '' : response.text()));
    return (await all(messages(response))).at(-1).result.content[0].text;
  }
}

/** The status of a response, and the code of its JSON-RPC error. */
export async function refused(response) {
  response = await response;
  return [response.status, (await response.json()).error.code];
}

// A client of MCP 2026-07-28 over HTTP that shows every byte that matters, and a server with tasks.
import { all, messages, serveFile } from './server.mjs';

/** The Tasks extension. */
export const EXTENSION = 'io.modelcontextprotocol/tasks';
const VERSION = '2026-07-28';

/** `sdks/tasks.mjs`. */
export function serveTasks(world, port = 0, ...further) {
  return serveFile(world, 'tasks.mjs', [port, ...further]);
}

/** A client that takes tasks, unless it is made with other capabilities. */
export class Modern {
  #id = 0;

  constructor(url, { capabilities, token, user } = {}) {
    this.url = url;
    this.capabilities = capabilities ?? { extensions: { [EXTENSION]: {} }, elicitation: {} };
    this.token = token;
    this.user = user;
  }

  /** The same client, at another process, or as somebody else. */
  with(changes) {
    const { url = this.url, ...rest } = changes;
    return new Modern(url, { capabilities: this.capabilities, token: this.token, user: this.user, ...rest });
  }

  /** A request, which was not sent. */
  made(method, params = {}, { headers = {}, signal } = {}) {
    const name = params.name ?? params.taskId;
    const meta = {
      'io.modelcontextprotocol/protocolVersion': VERSION,
      'io.modelcontextprotocol/clientInfo': { name: 'modern', version: '1.0.0' },
      'io.modelcontextprotocol/clientCapabilities': this.capabilities,
    };
    const body = { jsonrpc: '2.0', id: ++this.#id, method, params: { ...params, _meta: meta } };
    const given = {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': VERSION,
      'mcp-method': method,
      ...(name === undefined ? {} : { 'mcp-name': name }),
      ...(this.token ? { authorization: `Bearer ${this.token}` } : {}),
      ...(this.user ? { 'x-user': this.user } : {}),
      ...headers,
    };
    return new Request(this.url, { method: 'POST', headers: given, body: JSON.stringify(body), signal });
  }

  request(...given) {
    return fetch(this.made(...given));
  }

  /** The message that answers, and the status of HTTP. */
  async answer(...request) {
    const response = await this.request(...request);
    const json = response.headers.get('content-type').startsWith('application/json');
    const message = json ? await response.json() : (await all(messages(response))).at(-1);
    return { status: response.status, ...message };
  }

  /** What a request comes to. */
  async result(...request) {
    const { result, error } = await this.answer(...request);
    if (error) throw Object.assign(new Error(error.message), error);
    return result;
  }

  /** The error that a request gets. */
  async error(...request) {
    const { status, error, result } = await this.answer(...request);
    if (!error) throw new Error(`no error: ${JSON.stringify(result)}`);
    return { status, ...error };
  }

  call(name, given = {}, more = {}, how = {}) {
    return this.result('tools/call', { name, arguments: given, ...more }, how);
  }

  get(taskId) {
    return this.result('tasks/get', { taskId });
  }

  update(taskId, inputResponses) {
    return this.result('tasks/update', { taskId, inputResponses });
  }

  cancel(taskId) {
    return this.result('tasks/cancel', { taskId });
  }

  /** The messages of a subscription, one after the other. `stop` ends it. */
  async listen(notifications) {
    const stop = new AbortController();
    const response = await this.request('subscriptions/listen', { notifications }, { signal: stop.signal });
    const told = messages(response);
    return { response, told, next: async () => (await told.next()).value, stop: () => stop.abort() };
  }

  /** Follows a task by its notifications until `fits` says so. The first one tells how the task is. */
  async until(taskId, fits) {
    const { told, stop } = await this.listen({ taskIds: [taskId] });
    try {
      for await (const { method, params } of told)
        if (method === 'notifications/tasks' && fits(params)) return params;
      throw new Error('the subscription has ended');
    } finally {
      stop();
    }
  }

  /** Waits until a task has this status. */
  status(taskId, status) {
    return this.until(taskId, (task) => task.status === status);
  }
}

/** What people answer to `greet`. */
export const named = (name) => ({ action: 'accept', content: { name } });

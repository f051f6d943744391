// Notifications of tasks: what `subscriptions/listen` of the SDK answers, with those of tasks in between.
import { pause } from '../patience.js';
import type { Kept } from './kept.js';
import { RETRY_MS } from './persist.js';
import { declares, detailed, isGone, required, RpcError } from './rpc.js';
import { capabilitiesIn, isObject, type Asking, type HandlerLike } from './sdk.js';

/** Tasks that one subscription hears of. */
const TASKS_MAX = 64;
/** The largest body that is looked at, in bytes: that of the SDK. */
const BODY_MAX = 4 * 1024 * 1024;
/** The longest wait for a change, in ms. */
const WAIT_MS = 25_000;
/** How often a comment shows whether the client is there, in ms: as the SDK does. */
const COMMENT_MS = 15_000;

const SUBSCRIPTION = 'io.modelcontextprotocol/subscriptionId';
const ENDED: ReadonlySet<string> = new Set(['completed', 'failed', 'cancelled']);

type Find = (asking: Asking, id: string) => Kept;
type Fields = Record<string, unknown>;

/** A handler of the SDK's, and the subscriptions that hear of tasks. */
export class Listening {
  readonly #handler: HandlerLike;
  readonly #find: Find;
  readonly #open = new Set<Subscription>();

  constructor(handler: HandlerLike, find: Find) {
    this.#handler = handler;
    this.#find = find;
  }

  async fetch(request: Request, options: { authInfo?: any; parsedBody?: unknown } = {}): Promise<Response> {
    // The SDK refuses a request whose header says something else than its body.
    const listens = request.method === 'POST' && request.headers.get('mcp-method') === 'subscriptions/listen';
    const body = listens ? (options.parsedBody ?? (await parsed(request.clone()))) : undefined;
    const filter = filterOf(body);
    if (!isObject(body) || filter?.['taskIds'] === undefined) return this.#handler.fetch(request, options);
    const { taskIds, ...notifications } = filter;
    const params = { ...(body['params'] as Fields), notifications };
    const answer = await this.#handler.fetch(request, { ...options, parsedBody: { ...body, params } });
    if (!answer.body || !answer.headers.get('content-type')?.startsWith('text/event-stream')) return answer;
    try {
      const told = await this.#told({ authInfo: options.authInfo, req: request }, body, taskIds);
      const { headers } = answer;
      const subscription = new Subscription(answer.body, body['id'], told, () =>
        this.#open.delete(subscription),
      );
      this.#open.add(subscription);
      return new Response(subscription.stream, { headers });
    } catch (error) {
      void answer.body.cancel().catch(() => undefined);
      const { code, json } = RpcError.of(error);
      const status = code === -32603 ? 503 : 400;
      return Response.json({ jsonrpc: '2.0', id: body['id'] ?? null, error: json }, { status });
    }
  }

  async close(): Promise<void> {
    for (const subscription of this.#open) subscription.end();
    await this.#handler.close();
  }

  /** The tasks that a client is told of: those that are there, and its own. */
  async #told(asking: Asking, body: Fields, taskIds: unknown): Promise<Kept[]> {
    const meta = (body['params'] as Fields)['_meta'] as object | undefined;
    if (!declares(capabilitiesIn(meta))) throw RpcError.missing(required);
    if (!Array.isArray(taskIds) || !taskIds.every((id) => typeof id === 'string'))
      throw RpcError.invalid('`taskIds` is an array of ids of tasks');
    const ids = [...new Set(taskIds as string[])].slice(0, TASKS_MAX);
    const found = await Promise.all(ids.map((id) => this.#found(asking, id)));
    return found.filter((kept) => kept !== undefined);
  }

  async #found(asking: Asking, id: string): Promise<Kept | undefined> {
    let kept: Kept;
    try {
      kept = this.#find(asking, id);
    } catch {
      return undefined;
    }
    return kept.task.view().then(
      () => kept,
      (error: unknown) => {
        if (!isGone(error)) throw error;
        return undefined;
      },
    );
  }
}

/** One stream of a client that hears of tasks, and of what the SDK tells it. */
class Subscription {
  readonly stream: ReadableStream<Uint8Array>;
  readonly #sdk: ReadableStreamDefaultReader<Uint8Array>;
  readonly #id: unknown;
  readonly #tasks: Kept[];
  readonly #gone: () => void;
  readonly #stop = new AbortController();
  readonly #encoder = new TextEncoder();
  #controller!: ReadableStreamDefaultController<Uint8Array>;
  /** How the SDK has ended its part. */
  #last: string | undefined;

  constructor(sdk: ReadableStream<Uint8Array>, id: unknown, tasks: Kept[], gone: () => void) {
    this.#sdk = sdk.getReader();
    this.#id = id;
    this.#tasks = tasks;
    this.#gone = gone;
    this.stream = new ReadableStream({
      start: (controller) => {
        this.#controller = controller;
        void this.#run();
      },
      cancel: () => {
        this.#stop.abort();
        this.#gone();
        return this.#sdk.cancel();
      },
    });
  }

  /** Ends it in an orderly way. */
  end(): void {
    this.#stop.abort();
  }

  async #run(): Promise<void> {
    const comment = setInterval(() => this.#write(': keepalive\n\n'), COMMENT_MS);
    comment.unref();
    try {
      let acknowledged = (): void => undefined;
      const told = new Promise<void>((resolve) => {
        acknowledged = resolve;
      });
      const passed = this.#pass(acknowledged).finally(acknowledged);
      // Nothing comes before the acknowledgement.
      await told;
      await Promise.all([passed, ...this.#tasks.map((kept) => this.#follow(kept))]);
      if (this.#last) this.#write(this.#last);
    } catch {
      // The SDK's stream has broken: this one ends, and the client may come again.
    } finally {
      clearInterval(comment);
      this.#stop.abort();
      this.#gone();
      this.#close();
    }
  }

  /** Passes on what the SDK says. Its end waits until the tasks have ended. */
  async #pass(acknowledged: () => void): Promise<void> {
    const decoder = new TextDecoder();
    let text = '';
    for (;;) {
      const { done, value } = await this.#sdk.read();
      if (done) return;
      text += decoder.decode(value, { stream: true });
      for (let end; (end = text.indexOf('\n\n')) >= 0; text = text.slice(end + 2)) {
        const frame = text.slice(0, end + 2);
        const message = messageIn(frame);
        if (message?.['method'] === 'notifications/subscriptions/acknowledged') {
          this.#say(message['method'], this.#acknowledged(message));
          acknowledged();
        } else if (message && 'result' in message) this.#last = frame;
        else this.#write(frame);
      }
    }
  }

  #acknowledged({ params }: Fields): Fields {
    const taskIds = this.#tasks.map(({ id }) => id);
    const notifications = filterOf({ params }) ?? {};
    const told = taskIds.length > 0 ? { ...notifications, taskIds } : notifications;
    return { ...(params as Fields), notifications: told };
  }

  /** Tells how a task is, and each time that it changes, until it has ended. */
  async #follow({ id, task }: Kept): Promise<void> {
    let known: bigint | undefined;
    while (!this.#stop.signal.aborted) {
      try {
        const view = await (known === undefined
          ? task.view()
          : task.changed(known, WAIT_MS, this.#stop.signal));
        if (this.#stop.signal.aborted) return;
        if (view.version !== known)
          this.#say('notifications/tasks', { ...detailed(id, view), _meta: { [SUBSCRIPTION]: this.#id } });
        known = view.version;
        if (ENDED.has(view.status)) return;
      } catch (error) {
        if (isGone(error)) return;
        await pause(RETRY_MS);
      }
    }
  }

  #say(method: unknown, params: Fields): void {
    this.#write(`event: message\ndata: ${JSON.stringify({ jsonrpc: '2.0', method, params })}\n\n`);
  }

  #close(): void {
    try {
      this.#controller.close();
    } catch {
      // The client has gone.
    }
  }

  #write(frame: string): void {
    try {
      this.#controller.enqueue(this.#encoder.encode(frame));
    } catch {
      // The client has gone.
    }
  }
}

/** What a client wants to be told of. */
function filterOf(body: unknown): Fields | undefined {
  const params = isObject(body) ? body['params'] : undefined;
  const filter = isObject(params) ? params['notifications'] : undefined;
  return isObject(filter) ? filter : undefined;
}

function messageIn(frame: string): Fields | undefined {
  const data = /^data: (.*)$/m.exec(frame)?.[1];
  return data === undefined ? undefined : (JSON.parse(data) as Fields);
}

/** The body of a request. Undefined: it is no JSON, or too large, which the SDK says then. */
async function parsed(request: Request): Promise<unknown> {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  try {
    for await (const part of request.body as unknown as AsyncIterable<Uint8Array>) {
      bytes += part.length;
      if (bytes > BODY_MAX) return undefined;
      parts.push(part);
    }
    return JSON.parse(Buffer.concat(parts).toString('utf8'));
  } catch {
    return undefined;
  }
}

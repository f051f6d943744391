// Who hears of tasks: requests of `subscriptions/listen` that name some. The SDK answers them, and all others.
import { wholeBody } from '../body.js';
import type { FoundTask } from './task-store.js';
import { declares, isGone, required, RpcError } from './rpc.js';
import { capabilitiesIn, isObject, type Asking, type Fields, type HandlerLike } from './sdk.js';
import { filterOf, Subscription } from './subscription.js';

/** Tasks that one subscription hears of. */
const TASKS_MAX = 64;
/** Tasks that all subscriptions of a process hear of: each takes a place of a connection, of which there are 960. */
const FOLLOWED_MAX = 400;

type Find = (asking: Asking, id: string) => Promise<FoundTask>;

/** A handler of the SDK's, and the subscriptions that hear of tasks. */
export class ListenHandler {
  readonly #handler: HandlerLike;
  readonly #find: Find;
  readonly #refusal: (error: unknown) => RpcError;
  readonly #open = new Set<Subscription>();

  constructor(handler: HandlerLike, find: Find, refusal: (error: unknown) => RpcError) {
    this.#handler = handler;
    this.#find = find;
    this.#refusal = refusal;
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
      const tasks = await this.#tasksOf({ authInfo: options.authInfo, req: request }, body, taskIds);
      const followed = [...this.#open].reduce((sum, { size }) => sum + size, tasks.length);
      if (followed > FOLLOWED_MAX) throw RpcError.internal('Subscription limit reached');
      const { headers } = answer;
      const subscription = new Subscription(answer.body, body['id'], tasks, () =>
        this.#open.delete(subscription),
      );
      this.#open.add(subscription);
      // The reader of the stream may notice only at the next message that the client has gone.
      request.signal.addEventListener('abort', () => subscription.leave(), { once: true });
      if (request.signal.aborted) subscription.leave();
      return new Response(subscription.stream, { headers });
    } catch (error) {
      void answer.body.cancel().catch(() => undefined);
      const { code, json } = this.#refusal(error);
      const status = code === -32603 ? 503 : 400;
      return Response.json({ jsonrpc: '2.0', id: body['id'] ?? null, error: json }, { status });
    }
  }

  async close(): Promise<void> {
    for (const subscription of this.#open) subscription.end();
    await this.#handler.close();
  }

  /** The tasks that a client is told of: those that are there, and its own. */
  async #tasksOf(asking: Asking, body: Fields, taskIds: unknown): Promise<FoundTask[]> {
    const meta = (body['params'] as Fields)['_meta'] as object | undefined;
    if (!declares(capabilitiesIn(meta) ?? {})) throw RpcError.missing(required);
    if (!Array.isArray(taskIds) || !taskIds.every((id) => typeof id === 'string'))
      throw RpcError.invalid('`taskIds` is an array of ids of tasks');
    const ids = [...new Set(taskIds as string[])].slice(0, TASKS_MAX);
    const found = await Promise.all(ids.map((id) => this.#found(asking, id)));
    return found.filter((one) => one !== undefined);
  }

  async #found(asking: Asking, id: string): Promise<FoundTask | undefined> {
    try {
      const found = await this.#find(asking, id);
      await found.task.view();
      return found;
    } catch (error) {
      if (!isGone(error) && !(error instanceof RpcError)) throw error;
      return undefined;
    }
  }
}

/** The body of a request. Undefined: it is not JSON, or too large; the SDK reports that. */
async function parsed(request: Request): Promise<unknown> {
  try {
    const bytes = await wholeBody(request.body as unknown as AsyncIterable<Uint8Array>);
    return bytes && JSON.parse(bytes.toString('utf8'));
  } catch {
    return undefined;
  }
}

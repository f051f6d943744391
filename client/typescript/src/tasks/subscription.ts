// Notifications of tasks: what the SDK tells a client that listens, with those of tasks in between.
import { setMaxListeners } from 'node:events';
import { pause } from '../patience.js';
import type { Kept } from './kept.js';
import { RETRY_MS } from './persist.js';
import { detailed, isGone } from './rpc.js';
import { isObject } from './sdk.js';

/** The longest wait for a change, in ms. */
const WAIT_MS = 25_000;
/** How often a comment shows whether the client is there, in ms: as the SDK does. */
const COMMENT_MS = 15_000;

const SUBSCRIPTION = 'io.modelcontextprotocol/subscriptionId';
const ENDED: ReadonlySet<string> = new Set(['completed', 'failed', 'cancelled']);

type Fields = Record<string, unknown>;

/** One stream of a client that hears of tasks, and of what the SDK tells it. */
export class Subscription {
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
    // Each task that it hears of waits for it.
    setMaxListeners(0, this.#stop.signal);
    this.stream = new ReadableStream({
      start: (controller) => {
        this.#controller = controller;
        void this.#run();
      },
      cancel: () => this.leave(),
    });
  }

  /** How many tasks it hears of. */
  get size(): number {
    return this.#tasks.length;
  }

  /** The client has gone. */
  leave(): void {
    this.#stop.abort();
    this.#gone();
    void this.#sdk.cancel().catch(() => undefined);
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
export function filterOf(body: unknown): Fields | undefined {
  const params = isObject(body) ? body['params'] : undefined;
  const filter = isObject(params) ? params['notifications'] : undefined;
  return isObject(filter) ? filter : undefined;
}

function messageIn(frame: string): Fields | undefined {
  const data = /^data: (.*)$/m.exec(frame)?.[1];
  return data === undefined ? undefined : (JSON.parse(data) as Fields);
}

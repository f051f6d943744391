// Notifications of tasks: what the SDK tells a client that listens, with those of tasks in between.
import { setMaxListeners } from 'node:events';
import { pause } from '../deadline.js';
import { isFinal } from '../task.js';
import type { FoundTask } from './task-store.js';
import { RETRY_MS } from './persist.js';
import { detailedTask, isGone } from './rpc.js';
import { isObject, type Fields } from './sdk.js';

/** The longest wait for a change, in ms. */
const WAIT_MS = 25_000;
/** How often a comment shows whether the client is there, in ms: as the SDK does. */
const COMMENT_MS = 15_000;

const SUBSCRIPTION = 'io.modelcontextprotocol/subscriptionId';

/** One stream of a client that hears of tasks, and of what the SDK tells it. */
export class Subscription {
  readonly stream: ReadableStream<Uint8Array>;
  readonly #sdk: ReadableStreamDefaultReader<Uint8Array>;
  readonly #id: unknown;
  readonly #tasks: FoundTask[];
  readonly #gone: () => void;
  readonly #stop = new AbortController();
  readonly #encoder = new TextEncoder();
  #controller!: ReadableStreamDefaultController<Uint8Array>;
  /** What waits until the client has read what it was told. */
  #waiting: (() => void)[] = [];
  /** How the SDK has ended its part. */
  #last: string | undefined;

  constructor(sdk: ReadableStream<Uint8Array>, id: unknown, tasks: FoundTask[], gone: () => void) {
    this.#sdk = sdk.getReader();
    this.#id = id;
    this.#tasks = tasks;
    this.#gone = gone;
    // Each task that it hears of waits for it.
    setMaxListeners(0, this.#stop.signal);
    this.#stop.signal.addEventListener('abort', () => this.#goOn());
    this.stream = new ReadableStream({
      start: (controller) => {
        this.#controller = controller;
        void this.#run();
      },
      pull: () => this.#goOn(),
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
    const comment = setInterval(() => this.#hasRoom && this.#write(': keepalive\n\n'), COMMENT_MS);
    comment.unref();
    try {
      let acknowledged = (): void => undefined;
      const told = new Promise<void>((resolve) => {
        acknowledged = resolve;
      });
      const passed = this.#pass(acknowledged).finally(acknowledged);
      // Nothing comes before the acknowledgement.
      await told;
      await Promise.all([passed, ...this.#tasks.map((found) => this.#follow(found))]);
      if (this.#last) this.#write(this.#last);
    } catch {
      // The SDK's stream has broken: this one ends, and the client may come again.
    } finally {
      clearInterval(comment);
      this.#stop.abort();
      this.#gone();
      void this.#sdk.cancel().catch(() => undefined);
      this.#close();
    }
  }

  /** Passes on what the SDK says. Its end waits until the tasks have ended. */
  async #pass(acknowledged: () => void): Promise<void> {
    const decoder = new TextDecoder();
    let text = '';
    for (;;) {
      await this.#room();
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

  /**
   * Tells how a task is, and when it has changed, until it has ended. A client that reads slowly is told the
   * newest.
   */
  async #follow({ id, task }: FoundTask): Promise<void> {
    let known: bigint | undefined;
    for (;;) {
      await this.#room();
      if (this.#stop.signal.aborted) return;
      try {
        const view = await (known === undefined
          ? task.view()
          : task.changed(known, WAIT_MS, this.#stop.signal));
        if (this.#stop.signal.aborted) return;
        if (view.version !== known)
          this.#say('notifications/tasks', {
            ...detailedTask(id, view),
            _meta: { [SUBSCRIPTION]: this.#id },
          });
        known = view.version;
        if (isFinal(view.status)) return;
      } catch (error) {
        if (isGone(error)) return;
        await pause(RETRY_MS);
      }
    }
  }

  #say(method: unknown, params: Fields): void {
    this.#write(`event: message\ndata: ${JSON.stringify({ jsonrpc: '2.0', method, params })}\n\n`);
  }

  get #hasRoom(): boolean {
    return this.#stop.signal.aborted || (this.#controller.desiredSize ?? 0) > 0;
  }

  /** Waits until the client has read what it was told, or it ends: nothing is piled up for it. */
  async #room(): Promise<void> {
    while (!this.#hasRoom) await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  #goOn(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
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
  // Lines end where the event stream says so: `^` and `$` would find more ends, in the text of a message.
  const data = frame.split('\n').find((line) => line.startsWith('data: '));
  return data === undefined ? undefined : (JSON.parse(data.slice('data: '.length)) as Fields);
}

// A task that this process works on: it hears of answers and of the end, and stores what the work came to.
import type { Warn } from '../options.js';
import { pause } from '../deadline.js';
import { isFinal, type Task } from '../task.js';
import type { TaskChange, TaskView } from '../types.js';
import { truncated, endTask, persist, RETRY_MS, warnUnlessEnded } from './persist.js';
import { isGone, RpcError } from './rpc.js';
import { isObject } from './sdk.js';

/** The longest wait for a change, in ms. */
const WAIT_MS = 25_000;

/** What a client is asked: a request of MCP, such as `elicitation/create`. */
export interface InputRequest {
  method: string;
  params?: object;
}

/** What the work of a task has to do with its client. */
export interface Work {
  /** The task's id. Absent where the client takes no tasks: the work is done while it waits. */
  readonly id?: string;
  /** Aborted when the client has cancelled the task, or the task's time is over. */
  readonly signal: AbortSignal;
  /** Says how it is going. Never rejects. */
  update(change: Pick<TaskChange, 'message' | 'ttlMs' | 'pollMs'>): Promise<void>;
  /**
   * Asks the client, and waits for its answer. Rejects where the client can't be asked this (-32021), and when
   * the task is cancelled.
   */
  ask<T = any>(request: InputRequest): Promise<T>;
}

/** What the client of a task must have declared to be asked this. */
export function capabilityFor(method: string): string | undefined {
  return /^(elicitation|sampling|roots)\//.exec(method)?.[1];
}

interface Waiting {
  resolve: (answer: any) => void;
  reject: (error: unknown) => void;
}

/** The work of one task. */
export class RunningTask implements Work {
  readonly id: string;
  readonly #task: Task;
  readonly #capabilities: Record<string, unknown>;
  readonly #warn: Warn;
  readonly #gone = new AbortController();
  readonly #over = new AbortController();
  readonly #waiting = new Map<string, Waiting>();
  #asked = 0;

  constructor(id: string, task: Task, capabilities: object, warn: Warn) {
    this.id = id;
    this.#task = task;
    this.#capabilities = capabilities as Record<string, unknown>;
    this.#warn = warn;
  }

  get signal(): AbortSignal {
    return this.#gone.signal;
  }

  async update({ message, ttlMs, pollMs }: Pick<TaskChange, 'message' | 'ttlMs' | 'pollMs'>): Promise<void> {
    const change = {
      ...(message === undefined ? {} : { message: truncated(message) }),
      ...(ttlMs === undefined ? {} : { ttlMs: Math.round(ttlMs) }),
      ...(pollMs === undefined ? {} : { pollMs: Math.round(pollMs) }),
    };
    await this.#task.update(change).catch((error: unknown) => warnUnlessEnded(error, this.#warn));
  }

  ask<T = any>(request: InputRequest): Promise<T> {
    const answer = this.#ask<T>(request);
    // Work that does not wait for its answer any more is not ended by that.
    answer.catch(() => undefined);
    return answer;
  }

  async #ask<T>(request: InputRequest): Promise<T> {
    const needed = capabilityFor(request.method);
    if (needed && !isObject(this.#capabilities[needed])) throw RpcError.missing({ [needed]: {} });
    const key = `input-${++this.#asked}`;
    return new Promise<T>((resolve, reject) => {
      if (this.signal.aborted) return reject(this.signal.reason);
      this.#waiting.set(key, { resolve, reject });
      const asked = persist(() => this.#task.update({ ask: { [key]: request } }), this.#warn, this.signal);
      asked.catch((error: unknown) => {
        this.#waiting.delete(key);
        reject(error);
      });
    });
  }

  /** Does the work, and stores what it comes to. Never rejects. `began`: the task as it was created. */
  async done(work: (work: Work) => unknown, began: TaskView): Promise<void> {
    void this.#watch(began.version);
    try {
      const result = await work(this);
      await this.#end(() => this.#task.complete(result ?? {}));
    } catch (error) {
      await this.#end(() => this.#endBy(error));
    } finally {
      this.#over.abort();
    }
  }

  #endBy(error: unknown): Promise<TaskView> {
    const { code, message, data } = (error ?? {}) as RpcError;
    // Only an error of JSON-RPC is a failure. Any other one is the result of a tool, as without a task.
    if (Number.isSafeInteger(code)) return this.#task.fail(new RpcError(code, String(message), data).json);
    const text = error instanceof Error ? error.message : String(error);
    return this.#task.complete({ content: [{ type: 'text', text }], isError: true });
  }

  #end(how: () => Promise<TaskView>): Promise<void> {
    return endTask(this.#task, how, this.#warn, this.signal);
  }

  /** Hears how the task is. Tells whether it goes on. */
  observe({ inputs, status }: TaskView): boolean {
    for (const { key, response } of inputs) {
      if (response === undefined) continue;
      this.#waiting.get(key)?.resolve(response);
      this.#waiting.delete(key);
    }
    if (isFinal(status)) this.#leave(`the task is ${status}`);
    return !isFinal(status);
  }

  /** Hears of answers, and of the task's end, until the work is done. */
  async #watch(version: bigint): Promise<void> {
    for (let known = version; !this.#over.signal.aborted; ) {
      try {
        const view = await this.#task.changed(known, WAIT_MS, this.#over.signal);
        if (this.#over.signal.aborted) return;
        known = view.version;
        if (!this.observe(view)) return;
      } catch (error) {
        if (this.#over.signal.aborted) return;
        if (isGone(error)) return this.#leave("the task's time is over");
        await pause(RETRY_MS);
      }
    }
  }

  #leave(why: string): void {
    const reason = RpcError.internal(why);
    this.#gone.abort(reason);
    for (const { reject } of this.#waiting.values()) reject(reason);
    this.#waiting.clear();
  }
}

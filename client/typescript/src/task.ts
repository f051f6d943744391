// The tasks of a session: work that goes on after the request that began it was answered.
import { Cancelled } from './connection.js';
import { pause } from './deadline.js';
import type { SessionCalls } from './session-calls.js';
import type { TaskChange, TaskOptions, TaskView } from './types.js';
import { jsonText, present, requestId, type Wire } from './wire.js';

/** The longest wait of one call, in ms. */
const WAIT_MAX_MS = 25_000;
/** The pause after a wait that ended early with nothing to tell, in ms: the daemon is about to exit. */
const ENDED_EARLY_PAUSE_MS = 50;

/** Statuses that stay. */
const FINAL: ReadonlySet<string> = new Set(['completed', 'failed', 'cancelled']);

/** Whether a task with this status has ended. @internal */
export function isFinal(status: string): boolean {
  return FINAL.has(status);
}

/**
 * A task of a session (the Tasks extension of MCP 2026-07-28, SEP-2663). Beside the codes of every call of a
 * session: `unknown_task`, where there is none, or its time is over; and for calls that change it `task_ended`.
 */
export class Task {
  /** Its id, for the client. */
  readonly id: string;
  readonly #session: SessionCalls;

  /** @internal */
  constructor(session: SessionCalls, id: string) {
    this.#session = session;
    this.id = id;
  }

  /** The task as it is now. */
  async view(): Promise<TaskView> {
    return fromTask((await this.#session.read('get_task', { task: this.id })) as Wire);
  }

  /**
   * Changes the task: all that is said, or nothing. Repeating it has no further effect. `invalid_argument`: a
   * key of `ask` that the task has used for another request.
   */
  update({ message, ttlMs, pollMs, ask, answer, take }: TaskChange): Promise<TaskView> {
    return this.#update({
      message,
      ttl_ms: ttlMs === undefined ? undefined : String(ttlMs),
      poll_ms: pollMs,
      ask: texts(ask, 'request'),
      answer: texts(answer, 'response'),
      take: take || undefined,
    });
  }

  /** Ends the task by its result. `message`: what people are told of it, as for the other two. */
  complete(result: unknown, message?: string): Promise<TaskView> {
    return this.#update({ end: { completed: jsonText(result) }, message });
  }

  /** Ends the task by an error of JSON-RPC. */
  fail(error: unknown, message?: string): Promise<TaskView> {
    return this.#update({ end: { failed: jsonText(error) }, message });
  }

  /** Cancels the task. Its writer finds that out by {@link changed}, or by `task_ended`. */
  cancel(message?: string): Promise<TaskView> {
    return this.#update({ end: 'cancelled', message });
  }

  /**
   * Waits until the task has another version than this, or has ended. Where nothing changes within `ms`, or
   * `signal` is aborted: the task as it is. Other calls are not kept waiting.
   */
  async changed(version: bigint, ms: number, signal?: AbortSignal): Promise<TaskView> {
    const until = performance.now() + ms;
    for (;;) {
      const part = Math.min(Math.max(0, until - performance.now()), WAIT_MAX_MS);
      const began = performance.now();
      const view = await this.#waitOnce(version, part, signal);
      const over = signal?.aborted || performance.now() >= until;
      if (view.version !== version || isFinal(view.status) || over) return view;
      if (performance.now() - began < part) await pause(Math.min(ENDED_EARLY_PAUSE_MS, part));
    }
  }

  async #waitOnce(version: bigint, ms: number, signal?: AbortSignal): Promise<TaskView> {
    const until = performance.now() + ms;
    const fields = () => {
      // What was waited before a connection broke counts.
      const left = Math.min(Math.max(0, Math.ceil(until - performance.now())), WAIT_MAX_MS);
      return { task: this.id, version: String(version), timeout_ms: left };
    };
    try {
      return fromTask((await this.#session.waiting('wait_task', fields, ms, signal)) as Wire);
    } catch (error) {
      if (error instanceof Cancelled) return this.view();
      throw error;
    }
  }

  async #update(fields: Wire): Promise<TaskView> {
    return fromTask(
      (await this.#session.change('update_task', { task: this.id, ...present(fields) })) as Wire,
    );
  }
}

/** Creates a task. */
export async function createTask(
  session: SessionCalls,
  { ttlMs, pollMs, message, request = requestId() }: TaskOptions,
): Promise<TaskView> {
  const ttl = ttlMs === undefined ? undefined : String(ttlMs);
  const fields = present({ request, ttl_ms: ttl, poll_ms: pollMs, message });
  return fromTask((await session.change('create_task', fields)) as Wire);
}

function texts(given: Record<string, unknown> | undefined, name: string): Wire[] | undefined {
  const all = Object.entries(given ?? {});
  return all.length === 0 ? undefined : all.map(([key, value]) => ({ key, [name]: jsonText(value) }));
}

const parsed = (text: unknown) => (text == null ? undefined : JSON.parse(String(text)));

export function fromTask(task: Wire): TaskView {
  const inputs = ((task['inputs'] ?? []) as Wire[]).map(({ key, request, response }) =>
    present({ key, request: parsed(request), response: parsed(response) }),
  );
  return present({
    id: task['task'],
    status: task['status'],
    message: task['message'] ?? undefined,
    createdMs: Number(task['created_ms']),
    updatedMs: Number(task['updated_ms']),
    ttlMs: Number(task['ttl_ms']),
    pollMs: task['poll_ms'] ?? undefined,
    version: BigInt(task['version']),
    inputs,
    result: parsed(task['result']),
    error: parsed(task['error']),
  }) as TaskView;
}

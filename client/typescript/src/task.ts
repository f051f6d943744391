// The tasks of a session: work that goes on after the request that began it was answered.
import type { SessionCalls } from './session-calls.js';
import type { TaskChange, TaskOptions, TaskView } from './types.js';
import { jsonText, present, requestId, type Wire } from './wire.js';

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
  changed(version: bigint, ms: number, signal?: AbortSignal): Promise<TaskView> {
    const fields = () => ({ task: this.id, version: String(version) });
    const found = (answer: Wire | undefined) => (answer ? fromTask(answer) : this.view());
    const isOver = (view: TaskView) => view.version !== version || isFinal(view.status);
    return this.#session.waiting('wait_task', fields, { found, isOver }, ms, signal);
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

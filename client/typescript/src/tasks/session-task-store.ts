// The `TaskStore` of the SDK's v1 (MCP 2025-11-25): tasks in the session of the client that began them.
import { session as here } from '../durable/context.js';
import { isCode, SessiondError } from '../errors.js';
import { warner, type Logger, type Warn } from '../options.js';
import type { Session } from '../session.js';
import type { Task } from '../task.js';
import type { TaskStatus, TaskView } from '../types.js';
import { truncated, endTask, persist, warnUnlessEnded } from './persist.js';
import { isGone, messageOf, RpcError } from './rpc.js';
import { isObject } from './sdk.js';

/** How often clients should ask for a task that says nothing else, in ms: as the SDK's own store. */
const POLL_MS = 1_000;
/** Tasks of one page. */
const PAGE = 50;
/** Requests that a task of the daemon's has over its life. */
const ASKS_MAX = 64;

/** A task as MCP 2025-11-25 has it. */
export interface StoredTask {
  taskId: string;
  status: TaskStatus;
  statusMessage?: string;
  ttl: number;
  createdAt: string;
  lastUpdatedAt: string;
  pollInterval: number;
}

/** The session of a store, where it is one session's. */
export function sessionOf(own: Session | undefined, sessionId: string | undefined): Session {
  if (!own) return here({ sessionId });
  if (sessionId !== undefined && sessionId !== own.id)
    throw new SessiondError('no_session', "the store of a session was asked for another session's task");
  return own;
}

/**
 * What `taskStore` of the SDK's v1 takes, from 1.24 on. Without `session` it is for servers of `durable`: each
 * task is one of the session whose request began it. A task survives the server. One whose server was killed
 * while it worked has failed, "the outcome is unknown".
 *
 * ```ts
 * new McpServer(info, { taskStore: new SessionTaskStore(), taskMessageQueue: new SessionTaskQueue() });
 * ```
 */
export class SessionTaskStore {
  readonly #own: Session | undefined;
  readonly #warn: Warn;

  constructor(session?: Session, { log }: { log?: Logger } = {}) {
    this.#own = session;
    this.#warn = warner(log);
  }

  async createTask(
    { ttl, pollInterval = POLL_MS }: { ttl?: number | null; pollInterval?: number },
    _requestId: unknown,
    _request: unknown,
    sessionId?: string,
  ): Promise<StoredTask> {
    try {
      const ttlMs = ttl == null ? {} : { ttlMs: Math.max(1, Math.round(ttl)) };
      const begun = { ...ttlMs, pollMs: Math.max(0, Math.round(pollInterval)) };
      return stored((await sessionOf(this.#own, sessionId).createTask(begun)).view);
    } catch (error) {
      throw RpcError.internal(
        isCode(error, 'quota_exceeded', 'no_session')
          ? `the task could not be created: ${error.message}`
          : "the task could not be created: the daemon mcp-sessiond can't be asked now",
      );
    }
  }

  async getTask(taskId: string, sessionId?: string): Promise<StoredTask | null> {
    const view = await this.#view(taskId, sessionId);
    return view ? stored(view) : null;
  }

  /** Never rejects: what the daemon can't take now is stored later. */
  async storeTaskResult(
    taskId: string,
    status: 'completed' | 'failed',
    result: unknown,
    sessionId?: string,
  ): Promise<void> {
    try {
      const task = this.#task(taskId, sessionId);
      // A failed tool call has a result, too.
      const how = () => (status === 'failed' ? task.fail({ result }) : task.complete(result));
      await endTask(task, how, this.#warn);
    } catch (error) {
      warnUnlessEnded(error, this.#warn);
    }
  }

  async getTaskResult(taskId: string, sessionId?: string): Promise<any> {
    const view = await this.#view(taskId, sessionId);
    if (!view) throw RpcError.invalid(`Task not found: ${taskId}`);
    const { status, result, error } = view;
    if (status === 'completed' && isObject(result)) return result;
    if (status === 'failed' && isObject(error)) {
      if (isObject(error['result'])) return error['result'];
      throw new RpcError(Number(error['code']), String(error['message']), error['data']);
    }
    throw RpcError.invalid(`the task has no result: it is ${status}`);
  }

  /** Rejects only where a task that has ended is to be cancelled. */
  async updateTaskStatus(
    taskId: string,
    status: TaskStatus,
    statusMessage?: string,
    sessionId?: string,
  ): Promise<void> {
    const message = statusMessage === undefined ? undefined : truncated(statusMessage);
    try {
      const task = this.#task(taskId, sessionId);
      await persist(() => this.#become(task, status, message), this.#warn);
    } catch (error) {
      if (status === 'cancelled') throw RpcError.of(error);
      warnUnlessEnded(error, this.#warn);
    }
  }

  async listTasks(
    cursor?: string,
    sessionId?: string,
  ): Promise<{ tasks: StoredTask[]; nextCursor?: string }> {
    let all: TaskView[];
    try {
      all = await sessionOf(this.#own, sessionId).tasks();
    } catch (error) {
      throw RpcError.of(error);
    }
    const from = cursor === undefined ? 0 : all.findIndex(({ id }) => id === cursor) + 1;
    if (cursor !== undefined && from === 0) throw RpcError.invalid('the cursor is not one of this list');
    const page = all.slice(from, from + PAGE);
    return {
      tasks: page.map(stored),
      ...(from + PAGE < all.length ? { nextCursor: page.at(-1)!.id } : {}),
    };
  }

  #task(taskId: string, sessionId: string | undefined): Task {
    return sessionOf(this.#own, sessionId).task(taskId);
  }

  async #view(taskId: string, sessionId: string | undefined): Promise<TaskView | undefined> {
    try {
      return await this.#task(taskId, sessionId).view();
    } catch (error) {
      // A client's id may be anything.
      if (isGone(error) || isCode(error, 'invalid_argument')) return undefined;
      throw RpcError.of(error);
    }
  }

  async #become(task: Task, status: TaskStatus, message: string | undefined): Promise<void> {
    const told = message === undefined ? {} : { message };
    if (status === 'cancelled') await task.cancel(message);
    else if (status === 'completed') await task.complete(null, message);
    else if (status === 'failed')
      await task.fail(RpcError.internal(message ?? 'the task has failed').json, message);
    else {
      // A task of the daemon's waits for input while it has a request without an answer.
      const { inputs } = await task.view();
      const open = inputs.filter(({ response }) => response === undefined).map(({ key }) => key);
      if (status === 'input_required' && open.length === 0)
        await task.update({ ...told, ask: { [`status-${inputs.length}`]: null } });
      // The last request that it can have stays open: then the client waits for the result, and hears all.
      else if (status === 'working' && inputs.length < ASKS_MAX)
        await task.update({ ...told, answer: Object.fromEntries(open.map((key) => [key, null])) });
      else await task.update(told);
    }
  }
}

function stored(view: TaskView): StoredTask {
  const message = messageOf(view);
  return {
    taskId: view.id,
    status: view.status,
    ...(message === undefined ? {} : { statusMessage: message }),
    ttl: view.ttlMs,
    createdAt: new Date(view.createdMs).toISOString(),
    lastUpdatedAt: new Date(view.updatedMs).toISOString(),
    pollInterval: view.pollMs ?? POLL_MS,
  };
}

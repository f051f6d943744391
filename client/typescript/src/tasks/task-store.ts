// Where the tasks of a service are kept. MCP 2026-07-28 has no sessions, so each task has one of its own, whose
// id begins the task's: any process of the service finds it. The session is bound to the task's caller.
import { randomBytes } from 'node:crypto';
import type { Options } from '../options.js';
import { Sessions } from '../sessions.js';
import type { Task } from '../task.js';
import type { Caller, TaskOptions, TaskView } from '../types.js';
import { RpcError } from './rpc.js';

/** Random bytes of a session's id. With the daemon's own, a task's id has 48. */
const ID_BYTES = 16;
/** How long a session lives beside its task, in ms: until the task is created. */
const IDLE_MS = 60_000;
const TASK_ID = /^([\w-]{22})\.([\w-]{1,128})$/;

/** A task, and the id by which clients know it. */
export interface FoundTask {
  id: string;
  task: Task;
}

/** The tasks of a service. */
export class TaskStore {
  readonly #sessions: Sessions;

  constructor(service: string, options: Options) {
    this.#sessions = Sessions.ofService(service, options);
  }

  /** Creates a task of a caller's. It is kept when this resolves. Rejects with a `SessiondError`. */
  async create(caller: Caller | undefined, options: TaskOptions): Promise<FoundTask & { view: TaskView }> {
    const session = await this.#sessions.create({
      id: randomBytes(ID_BYTES).toString('base64url'),
      status: { is: 'ready' },
      lifetimes: { idleMs: IDLE_MS },
      ...(caller ? { binding: { caller } } : {}),
    });
    const { task, view } = await session.createTask(options);
    return { id: `${session.id}.${task.id}`, task, view };
  }

  /**
   * The task that a caller means by an id. That there is none of this caller's may show only at the task's
   * first call. Rejects with a {@link RpcError} or a `SessiondError`.
   */
  async find(caller: Caller | undefined, id: unknown): Promise<FoundTask> {
    if (typeof id !== 'string') throw RpcError.invalid('`taskId` is missing: it is text');
    const [, session, task] = TASK_ID.exec(id) ?? [];
    if (!session || !task) throw RpcError.notFound();
    const found = this.#sessions.onBehalfOf(caller).at(session);
    // What nobody in particular has begun is not for those that have a name: it may have been foisted on them.
    if (caller && !(await found.view()).bound) throw RpcError.notFound();
    return { id, task: found.task(task) };
  }
}

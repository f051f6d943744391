// The `TaskMessageQueue` of the SDK's v1 (MCP 2025-11-25): what a task has to say, until `tasks/result` asks for it.
import { isCode } from '../errors.js';
import type { Session } from '../session.js';
import { isFinal } from '../task.js';
import { requestId } from '../wire.js';
import { RpcError } from './rpc.js';
import { sessionOf } from './session-task-store.js';

/** How long a queue is kept after its last message, in ms: as long as a task may live by default. */
const KEPT_MS = 24 * 3600_000;
/** How long an empty queue is kept, in ms: longer than any call that is repeated. */
const EMPTY_MS = 5 * 60_000;
/** Changes that a queue remembers: more than processes change it between a write and its repetition. */
const CHANGES_MAX = 16;

/** A message of the SDK's: a request, a notification, or an answer. */
interface Queued {
  type: string;
}

/** A queue, and the ids of its last changes: whether one was carried out is seen there if its answer is lost. */
interface Queue {
  items: Queued[];
  changes: string[];
}

/**
 * What `taskMessageQueue` of the SDK's v1 takes, from 1.24 on, beside a {@link SessionTaskStore} of the same
 * session.
 */
export class SessionTaskQueue {
  readonly #own: Session | undefined;

  constructor(session?: Session) {
    this.#own = session;
  }

  async enqueue(taskId: string, message: any, sessionId?: string, maxSize?: number): Promise<void> {
    await this.#change(taskId, sessionId, (items) => {
      if (maxSize !== undefined && items.length >= maxSize)
        throw RpcError.internal(`the queue of a task has ${maxSize} messages at most`);
      return [...items, message];
    });
  }

  async dequeue(taskId: string, sessionId?: string): Promise<any> {
    for (;;) {
      let taken: Queued | undefined;
      await this.#change(taskId, sessionId, (items) => {
        [taken] = items;
        return items.slice(1);
      });
      if (!taken) return undefined;
      // A request of a task that has ended needs no answer any more.
      if (taken.type !== 'request' || !(await this.#isOver(taskId, sessionId))) return taken;
    }
  }

  async dequeueAll(taskId: string, sessionId?: string): Promise<any[]> {
    let taken: Queued[] = [];
    await this.#change(taskId, sessionId, (items) => {
      taken = items;
      return [];
    });
    return taken;
  }

  async #isOver(taskId: string, sessionId: string | undefined): Promise<boolean> {
    const { status } = await sessionOf(this.#own, sessionId).task(taskId).view();
    return isFinal(status);
  }

  /** Changes a queue as a whole, from how it is then. */
  async #change(
    taskId: string,
    sessionId: string | undefined,
    change: (items: Queued[]) => Queued[],
  ): Promise<void> {
    const session = sessionOf(this.#own, sessionId);
    const key = `mcp.queue.${taskId}`;
    const id = requestId();
    for (;;) {
      const { value = { items: [], changes: [] }, version } = await session.entry<Queue>(key);
      if (value.changes.includes(id)) return;
      const { items } = value;
      const changed = change(items);
      if (changed.length === 0 && items.length === 0) return;
      const changes = [...value.changes, id].slice(-CHANGES_MAX);
      const expiresMs = changed.length === 0 ? EMPTY_MS : KEPT_MS;
      try {
        await session.write([{ key, value: { items: changed, changes }, expected: version, expiresMs }]);
        return;
      } catch (error) {
        if (!isCode(error, 'version_conflict', 'uncertain')) throw error;
      }
    }
  }
}

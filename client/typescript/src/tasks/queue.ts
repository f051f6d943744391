// The `TaskMessageQueue` of the SDK's v1 (MCP 2025-11-25): what a task has to say, until `tasks/result` asks for it.
import { isCode } from '../errors.js';
import type { Session } from '../session.js';
import { requestId } from '../wire.js';
import { RpcError } from './rpc.js';
import { sessionOf } from './store.js';

/** How long a queue is kept after its last message, in ms: as long as a task may live by default. */
const KEPT_MS = 24 * 3600_000;

/** A message of the SDK's: a request, a notification, or an answer. */
interface Queued {
  type: string;
}

interface Item {
  id: string;
  message: Queued;
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
    const item: Item = { id: requestId(), message };
    await this.#change(taskId, sessionId, (items) => {
      if (items.some(({ id }) => id === item.id)) return items;
      if (maxSize !== undefined && items.length >= maxSize)
        throw RpcError.internal(`the queue of a task has ${maxSize} messages at most`);
      return [...items, item];
    });
  }

  async dequeue(taskId: string, sessionId?: string): Promise<any> {
    for (;;) {
      let taken: Item | undefined;
      await this.#change(taskId, sessionId, (items, doubtful) => {
        // It may be out of the queue already, by the attempt whose answer was lost.
        if (doubtful && taken && !items.some(({ id }) => id === taken?.id)) return items;
        [taken] = items;
        return items.slice(1);
      });
      if (!taken) return undefined;
      // Nobody waits any more for what a client is asked by a task that has ended.
      if (taken.message.type !== 'request' || !(await this.#isOver(taskId, sessionId))) return taken.message;
    }
  }

  async dequeueAll(taskId: string, sessionId?: string): Promise<any[]> {
    let taken: Item[] = [];
    await this.#change(taskId, sessionId, (items, doubtful) => {
      const left = new Set(items.map(({ id }) => id));
      taken = [...(doubtful ? taken.filter(({ id }) => !left.has(id)) : []), ...items];
      return [];
    });
    return taken.map(({ message }) => message);
  }

  async #isOver(taskId: string, sessionId: string | undefined): Promise<boolean> {
    const { status } = await sessionOf(this.#own, sessionId).task(taskId).view();
    return status !== 'working' && status !== 'input_required';
  }

  /** Changes a queue as a whole. `doubtful`: whether the attempt before was carried out is not known. */
  async #change(
    taskId: string,
    sessionId: string | undefined,
    change: (items: Item[], doubtful: boolean) => Item[],
  ): Promise<void> {
    const session = sessionOf(this.#own, sessionId);
    const key = `mcp.queue.${taskId}`;
    for (let doubtful = false; ; ) {
      const { value: items = [], version } = await session.entry<Item[]>(key);
      const changed = change(items, doubtful);
      if (changed === items || (changed.length === 0 && items.length === 0)) return;
      const write = { key, expected: version };
      const put = changed.length === 0 ? write : { ...write, value: changed, expiresMs: KEPT_MS };
      try {
        await session.write([put]);
        return;
      } catch (error) {
        if (!isCode(error, 'version_conflict', 'uncertain')) throw error;
        doubtful = error.code === 'uncertain';
      }
    }
  }
}

/**
 * Keeps an MCP server's sessions across its restarts, with the per-user daemon `mcp-sessiond`.
 *
 * - {@link Sessiond}: a server on stdio keeps the resume token of its broker.
 * - {@link Sessions}: a server that serves many clients keeps their state, and what it has said to them.
 *
 * @packageDocumentation
 */
export { Attachment } from './attachment.js';
export { isCode, SessiondError, type ErrorCode, type ErrorFields, type RefusalCode } from './errors.js';
export { CALL_TIMEOUT_MS, type ClaimOptions, type Logger, type Options, type Siblings } from './options.js';
export { Session } from './session.js';
export { Sessions } from './sessions.js';
export { Stream, STANDALONE } from './stream.js';
export { Task } from './task.js';
export type * from './types.js';
export { credential } from './wire.js';
export { Sessiond, type Status } from './sessiond.js';
export type { Outcome } from './lease.js';
export { SessionEventStore, type EventStore } from './eventstore.js';
export { session } from './durable/context.js';
export type { SessionCookie } from './durable/cookie.js';
export { durable, type DurableHandler, type DurableOptions } from './durable/handler.js';
export type { HttpTransport, McpServerLike, TransportClass } from './durable/sdk.js';
export { expressStore, type ExpressStore, type ExpressStoreOptions } from './express.js';
export { eventBus, type EventBus, type EventBusOptions } from './eventbus.js';
export {
  taskExtension,
  type RunOptions,
  type TaskExtension,
  type TaskExtensionOptions,
} from './tasks/extension.js';
export type { InputRequest, Work } from './tasks/work.js';
export { SessionTaskStore, type StoredTask } from './tasks/store.js';
export { SessionTaskQueue } from './tasks/queue.js';
export { requestStateCodec, type RequestStateOptions, type StateCodec } from './requeststate.js';

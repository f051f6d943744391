/**
 * Keeps an MCP server's sessions across its restarts, with the per-user daemon `mcp-sessiond`.
 *
 * - {@link Sessiond}: a server on stdio keeps the resume token of its broker.
 * - {@link Sessions}: a server with many clients keeps their state, their events and their tasks.
 *
 * @packageDocumentation
 */
// The modules, from the socket up: none imports one that is listed after it.
//
// - errors: every error and its code. types: what calls take and return. wire: from both to JSON and back.
// - hello, directory, connection: one connection to a daemon of this user. start: starts a daemon.
// - options, deadline: what a caller may say, and how long a call may take.
// - connect: reaches the daemon, and starts it where none runs. retrying-client: repeats calls over connections
//   that break. connections: the connections of one owner, among them those for calls that wait.
// - session-calls: how a call names its session. stream, task, attachment: parts of a session. session: all of
//   it. sessions: creates, opens and lists the sessions of an owner.
// - lease, log, sessiond: the resume token of a server on stdio: claims, log lines, and the calls of version 1.
// - body: reads a request before the SDK does. appender: appends to a stream in order. event-store, event-bus, request-state: what the official SDK can be
//   given.
// - durable/: an HTTP server on the official SDK whose sessions survive it. app asks what the app is like. durable answers
//   requests: get reads streams, post and served-session pass requests to the SDK's server, restore makes one anew from
//   its handshake.
// - tasks/: extension is the Tasks extension of MCP 2026-07-28.
// - browser, browser-page: a web page that resumes its calls when it is loaded again. A package entry of its own,
//   which uses nothing of Node or of the other modules.
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
export { SessionEventStore, type EventStore } from './event-store.js';
export { session } from './durable/context.js';
export type { SessionCookie } from './durable/cookie.js';
export { durable, type DurableHandler } from './durable/handler.js';
export type { DurableOptions } from './durable/options.js';
export type { HttpTransport, McpServerLike, TransportClass } from './durable/sdk.js';
export { eventBus, type EventBus, type EventBusOptions } from './event-bus.js';
export {
  taskExtension,
  type RunOptions,
  type TaskExtension,
  type TaskExtensionOptions,
} from './tasks/extension.js';
export type { InputRequest, Work } from './tasks/running-task.js';
export { requestStateCodec, type RequestStateOptions, type StateCodec } from './request-state.js';

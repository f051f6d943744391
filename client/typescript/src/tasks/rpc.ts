// The Tasks extension (SEP-2663) on the wire: its names, its errors, and a task as clients see it.
import { isCode } from '../errors.js';
import type { Json, TaskStatus, TaskView } from '../types.js';
import { isObject } from './sdk.js';

/** The extension's identifier. */
export const EXTENSION = 'io.modelcontextprotocol/tasks';

const INVALID_PARAMS = -32602;
/** The code of an error that hides its cause. */
export const INTERNAL = -32603;
const MISSING_CAPABILITY = -32021;
const NO_METHOD = -32601;

/** An error of JSON-RPC, which the SDK sends as it is. */
export class RpcError extends Error {
  constructor(
    readonly code: number,
    message: string,
    readonly data?: unknown,
  ) {
    super(message);
  }

  /** The client has not declared what it needs for this. */
  static missing(requiredCapabilities: object): RpcError {
    return new RpcError(MISSING_CAPABILITY, 'Missing required client capability', { requiredCapabilities });
  }

  static noMethod(): RpcError {
    return new RpcError(NO_METHOD, 'Method not found');
  }

  static invalid(message: string): RpcError {
    return new RpcError(INVALID_PARAMS, message);
  }

  /** There is no such task, as far as this caller may know. */
  static notFound(): RpcError {
    return RpcError.invalid('Task not found: it does not exist, or its time is over');
  }

  /**
   * What a request about a task gets whose task can't be had. Another caller's task is one that is not there.
   */
  static of(error: unknown): RpcError {
    if (error instanceof RpcError) return error;
    if (isGone(error)) return RpcError.notFound();
    if (isCode(error, 'quota_exceeded', 'invalid_argument')) return RpcError.invalid(error.message);
    return new RpcError(INTERNAL, "the daemon mcp-sessiond can't be asked for this task now: try again");
  }

  static internal(message: string, data?: unknown): RpcError {
    return new RpcError(INTERNAL, message, data);
  }

  /** The error as a task has it. */
  get json(): object {
    const { code, message, data } = this;
    return { code, message, ...(data === undefined ? {} : { data }) };
  }
}

/** Whether a task is not there, as far as this caller may know. */
export function isGone(error: unknown): boolean {
  return isCode(error, 'unknown_task', 'unknown_session', 'session_terminated', 'binding_mismatch');
}

/** The tasks extension, as what a client must declare. */
export const required = { extensions: { [EXTENSION]: {} } };

/** Throws -32021 unless the client has declared the extension in its request. */
export function requireDeclared(capabilities: Record<string, unknown>): void {
  if (!declares(capabilities)) throw RpcError.missing(required);
}

/** Whether the client has declared the extension in its request. */
export function declares({ extensions }: Record<string, unknown>): boolean {
  return isObject(extensions) && isObject(extensions[EXTENSION]);
}

/** A task without what its status brings with it. */
export interface TaskFields {
  taskId: string;
  status: TaskStatus;
  statusMessage?: string;
  createdAt: string;
  lastUpdatedAt: string;
  ttlMs: number;
  pollIntervalMs?: number;
}

/** A task as `tasks/get` and `notifications/tasks` show it. */
export interface DetailedTask extends TaskFields {
  inputRequests?: Record<string, Json>;
  result?: Json;
  error?: Json;
}

/** What people are told of a task's state. */
function messageOf({ status, error, message }: TaskView): string | undefined {
  // The message from before the failure is outdated.
  const failure = status === 'failed' && isObject(error) ? error['message'] : undefined;
  return typeof failure === 'string' ? failure : message;
}

export function fieldsOf(id: string, view: TaskView): TaskFields {
  const message = messageOf(view);
  return {
    taskId: id,
    status: view.status,
    ...(message === undefined ? {} : { statusMessage: message }),
    createdAt: new Date(view.createdMs).toISOString(),
    lastUpdatedAt: new Date(view.updatedMs).toISOString(),
    ttlMs: view.ttlMs,
    ...(view.pollMs === undefined ? {} : { pollIntervalMs: view.pollMs }),
  };
}

export function detailedTask(id: string, view: TaskView): DetailedTask {
  const open = view.inputs.filter(({ response }) => response === undefined);
  return {
    ...fieldsOf(id, view),
    ...(view.status === 'input_required'
      ? { inputRequests: Object.fromEntries(open.map(({ key, request }) => [key, request])) }
      : {}),
    ...(view.status === 'completed' ? { result: view.result ?? null } : {}),
    ...(view.status === 'failed' ? { error: view.error ?? null } : {}),
  };
}

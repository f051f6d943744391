// What is used of the official SDK's v2: its public interface, and no more of it than this.

/** What the SDK gives to a handler. */
export interface RequestContext {
  mcpReq: {
    signal: AbortSignal;
    /** The reserved keys of `_meta`, which a client of any version of MCP may send. */
    envelope?: object | undefined;
  };
  http?: Asking | undefined;
}

/** Who asks, as an HTTP request tells it. */
export interface Asking {
  /** The result of checking the bearer token. */
  authInfo?: { token: string; clientId?: string; extra?: Record<string, unknown> } | undefined;
  req?: Request | undefined;
}

/** A `Server`. */
export interface ServerLike {
  connect(transport: any): Promise<void>;
  registerCapabilities(capabilities: any): void;
  setRequestHandler(method: any, schemas: any, handler: any): void;
}

/** A `Server`, or a `McpServer` around one. */
export type AnyServer = ServerLike | { server: ServerLike };

/** What `createMcpHandler` makes. */
export interface HandlerLike {
  fetch(request: Request, options?: any): Promise<Response>;
  close(): Promise<void>;
}

/** A schema that takes everything (standardschema.dev). */
export const ANYTHING = {
  '~standard': { version: 1, vendor: 'mcp-sessiond', validate: (value: unknown) => ({ value }) },
} as const;

export type Fields = Record<string, unknown>;

/** The transport of a server. */
export interface Transport {
  send(message: unknown, options?: unknown): Promise<void>;
  onmessage?: ((message: unknown, extra?: unknown) => void) | undefined;
}

/** An object of JSON. */
export function isObject(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The reserved keys of `_meta` that are read here. */
const VERSION = 'io.modelcontextprotocol/protocolVersion';
const CAPABILITIES = 'io.modelcontextprotocol/clientCapabilities';
/** The first version of MCP that has the extension. */
const FIRST = '2026-07-28';

/** What a client has declared of itself in a request. Undefined: the request is of a version of MCP without the extension. */
export function capabilitiesIn(envelope: object | undefined): Fields | undefined {
  const { [VERSION]: version, [CAPABILITIES]: declared } = (envelope ?? {}) as Fields;
  if (typeof version !== 'string' || version < FIRST) return undefined;
  return isObject(declared) ? declared : {};
}

/** The parameter of `tasks/update` that has the answers as the client has sent them. */
export const ANSWERS = 'mcp-sessiond/answers';

/** A message for the SDK, which would keep the answers to itself that are no objects. */
export function withAnswers(message: unknown): unknown {
  const { method, params } = message as { method?: unknown; params?: unknown };
  if (method !== 'tasks/update' || !isObject(params)) return message;
  return { ...(message as object), params: { ...params, [ANSWERS]: params['inputResponses'] } };
}

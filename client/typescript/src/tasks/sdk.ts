// What is used of the official SDK's v2: its public interface, and no more of it than this.

/** What the SDK gives to a handler. */
export interface RequestContext {
  mcpReq: {
    signal: AbortSignal;
    /** The reserved keys of `_meta`. Absent before MCP 2026-07-28. */
    envelope?: object | undefined;
    inputResponses?: object | undefined;
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

type Fields = Record<string, unknown>;

/** An object of JSON. */
export function isObject(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** What a client has declared of itself in a request. */
export function capabilitiesIn(envelope: object | undefined): Fields {
  const declared = (envelope as Fields | undefined)?.['io.modelcontextprotocol/clientCapabilities'];
  return isObject(declared) ? declared : {};
}

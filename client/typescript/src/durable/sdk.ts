// What is used of the official SDK, v1 and v2: its public interface, and no more of it than this.
import type { IncomingMessage, ServerResponse } from 'node:http';

/** A message of JSON-RPC. */
export interface Message {
  jsonrpc: '2.0';
  id?: string | number;
  method?: string;
  params?: Record<string, unknown>;
  result?: unknown;
  error?: unknown;
}

/** Which request a message belongs to. */
export interface SendOptions {
  relatedRequestId?: string | number;
}

/** `StreamableHTTPServerTransport` of v1, `NodeStreamableHTTPServerTransport` of v2. */
export interface HttpTransport {
  handleRequest(request: IncomingMessage, response: ServerResponse, parsedBody?: unknown): Promise<void>;
  send(message: any, options?: any): Promise<void>;
  start(): Promise<void>;
  close(): Promise<void>;
  onclose?: (() => void) | undefined;
  onmessage?: ((message: any, extra?: any) => void) | undefined;
  /** Of a session that a client has begun. */
  sessionId?: string | undefined;
  /** From 1.24 on. */
  closeSSEStream?(requestId: string | number): void;
}

/** The class of a transport. */
export type TransportClass = new (options: any) => HttpTransport;

/** `McpServer` or `Server`. */
export interface McpServerLike {
  connect(transport: any): Promise<void>;
  close(): Promise<void>;
}

export const isRequest = (message: Message): boolean =>
  message.method !== undefined && message.id !== undefined;

export const isInitialize = (message: Message): boolean =>
  isRequest(message) && message.method === 'initialize';

export const isInitialized = (message: Message): boolean => message.method === 'notifications/initialized';

/** Whether it may be a message of JSON-RPC. The SDK looks closer. */
export function isMessage(value: unknown): value is Message {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

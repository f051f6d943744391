// What is read of a request.
import type { IncomingMessage } from 'node:http';
import type { Caller } from '../types.js';
import { credential } from '../wire.js';
import { Refusal } from './refusal.js';
import { isMessage, type Message } from './sdk.js';

/** The largest body, in bytes: that of the official SDK. */
const BODY_MAX = 4 * 1024 * 1024;

/** A request, which a framework may have read already. */
export type HttpRequest = IncomingMessage & { body?: unknown };

/** A header that a request has at most once. */
export function header(request: IncomingMessage, name: string): string | undefined {
  const value = request.headers[name];
  return Array.isArray(value) ? value[0] : value;
}

/**
 * The caller with the bearer token of a request (RFC 6750, section 2.1), of which the daemon gets the hash.
 * Undefined: none.
 */
export function bearer(request: IncomingMessage): Caller | undefined {
  const [, token] = /^Bearer +(\S+) *$/i.exec(header(request, 'authorization') ?? '') ?? [];
  return token === undefined ? undefined : credential(token);
}

/** The messages of a POST, and its body as the SDK takes it. Rejects with a {@link Refusal}. */
export async function messagesOf(request: HttpRequest): Promise<{ body: unknown; messages: Message[] }> {
  const body = request.body === undefined ? await parsed(request) : request.body;
  const messages = (Array.isArray(body) ? body : [body]) as unknown[];
  if (!messages.every(isMessage)) throw Refusal.invalid('the body is not a JSON-RPC message');
  return { body, messages };
}

async function parsed(request: IncomingMessage): Promise<unknown> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of request as AsyncIterable<Buffer>) {
    bytes += part.length;
    if (bytes > BODY_MAX) throw Refusal.tooLarge(BODY_MAX);
    parts.push(part);
  }
  try {
    return JSON.parse(Buffer.concat(parts).toString('utf8'));
  } catch {
    throw Refusal.noJson();
  }
}

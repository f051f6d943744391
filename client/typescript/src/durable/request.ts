// What is read of a request.
import type { IncomingMessage } from 'node:http';
import { BODY_MAX, wholeBody } from '../body.js';
import type { Caller } from '../types.js';
import { bearerToken, credential } from '../wire.js';
import { Refusal } from './refusal.js';
import { isMessage, type Message } from './sdk.js';

/** A request, which a framework may have read already. */
export type HttpRequest = IncomingMessage & { body?: unknown };

/** A header that a request has at most once. */
export function header(request: IncomingMessage, name: string): string | undefined {
  const value = request.headers[name];
  return Array.isArray(value) ? value[0] : value;
}

/** The caller with the bearer token of a request, of which the daemon gets the hash. Undefined: none. */
export function bearer(request: IncomingMessage): Caller | undefined {
  const token = bearerToken(header(request, 'authorization'));
  return token === undefined ? undefined : credential(token);
}

/** What `requireBearerAuth` of the SDK leaves on a request whose token its verifier has let in. */
interface AuthInfo {
  token?: unknown;
  subject?: unknown;
  extra?: { sub?: unknown; iss?: unknown };
}

/**
 * The user of the token that the SDK's own verifier has left on a request. Undefined: there is none, or it names no
 * subject. Nothing else is believed: an app that knows its users by a cookie lets in any `Authorization` header. A client
 * id is the same for all users of a host.
 */
export function verified(request: IncomingMessage & { auth?: AuthInfo }): Caller | undefined {
  const { auth } = request;
  const shown = bearerToken(header(request, 'authorization'));
  if (!auth || shown === undefined || auth.token !== shown) return undefined;
  const { sub = auth.subject, iss = 'verifier' } = auth.extra ?? {};
  return typeof sub === 'string' && sub && typeof iss === 'string'
    ? { kind: 'identity', iss, sub }
    : undefined;
}

/** The messages of a POST, and its body as the SDK takes it. Rejects with a {@link Refusal}. */
export async function messagesOf(request: HttpRequest): Promise<{ body: unknown; messages: Message[] }> {
  // The SDK looks closer. A framework leaves what has another type as a text, or does not read it.
  if (!/application\/json/i.test(header(request, 'content-type') ?? '')) throw Refusal.notJsonType();
  const body = request.body === undefined ? await parsed(request) : request.body;
  const messages = (Array.isArray(body) ? body : [body]) as unknown[];
  if (!messages.every(isMessage)) throw Refusal.invalid('the body is not a JSON-RPC message');
  return { body, messages };
}

async function parsed(request: IncomingMessage): Promise<unknown> {
  const bytes = await wholeBody(request);
  if (!bytes) throw Refusal.tooLarge(BODY_MAX);
  // Without a byte order mark, as the SDK reads it.
  const text = new TextDecoder().decode(bytes);
  try {
    return JSON.parse(text);
  } catch {
    throw unreadable(text);
  }
}

/** Why a text is not JSON: it may have numbers that JSON does not have. */
function unreadable(text: string): Refusal {
  let found: string | undefined;
  const tokens = /"(?:[^"\\]|\\.)*"|-?Infinity|NaN/g;
  const readable = text.replace(tokens, (token) => {
    if (token.startsWith('"')) return token;
    found ??= token;
    return 'null';
  });
  if (found === undefined) return Refusal.noJson();
  try {
    const message: unknown = JSON.parse(readable);
    const { id, method } = isMessage(message) ? message : {};
    const isClear = typeof method === 'string' && (typeof id === 'string' || typeof id === 'number');
    return Refusal.notJson(found, isClear ? id : undefined);
  } catch {
    return Refusal.noJson();
  }
}

/** The versions of MCP that have sessions. */
const VERSIONS = ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25'];

/** Throws a {@link Refusal} where a request names a version of MCP that has no sessions, or that is none. */
export function checkVersion(request: IncomingMessage): void {
  const version = header(request, 'mcp-protocol-version');
  if (version === undefined || VERSIONS.includes(version)) return;
  const known = VERSIONS.join(', ');
  throw Refusal.invalid(`\`MCP-Protocol-Version\` is none that is spoken here, which are ${known}`);
}

/** Takes a header from a request, which the SDK then does not see. */
export function dropHeader(request: IncomingMessage, name: string): void {
  delete request.headers[name];
  const raw = request.rawHeaders;
  for (let at = raw.length - 2; at >= 0; at -= 2) if (raw[at]!.toLowerCase() === name) raw.splice(at, 2);
}

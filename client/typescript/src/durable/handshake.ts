// The handshake of a session, which is stored with it, so that a new server can be initialised like the
// former one.
import type { Session } from '../session.js';
import type { Json, SessionView } from '../types.js';
import { jsonText } from '../wire.js';

/** The key of the state that has a handshake which is too large for the metadata. */
const STATE = 'mcp.handshake';
/** Bytes of a session's metadata. */
const METADATA_MAX = 65_536;
/** The version that is meant where a server does not say which. */
const ASSUMED = '2025-03-26';

/**
 * A handshake: what the client has asked, what the server has answered, and the version of MCP that it chose.
 */
export interface Handshake {
  initialize: Json;
  result: Json;
  version: string;
}

/** The handshake with these parameters of the client's, and this result of the server's. */
export function handshakeOf(initialize: unknown, result: unknown): Handshake {
  const chosen = (result as { protocolVersion?: unknown }).protocolVersion;
  return {
    initialize: initialize as Json,
    result: result as Json,
    version: typeof chosen === 'string' ? chosen : ASSUMED,
  };
}

/** Whether an `initialize` with these parameters is by the same client, and asks for the same version. */
export function isSameClient({ initialize }: Handshake, params: unknown): boolean {
  type Params = { protocolVersion?: unknown; clientInfo?: { name?: unknown } } | null | undefined;
  const [then, now] = [initialize as Params, params as Params];
  return then?.protocolVersion === now?.protocolVersion && then?.clientInfo?.name === now?.clientInfo?.name;
}

/** Stores a handshake. With that the session is ready. */
export async function storeHandshake(session: Session, made: Handshake): Promise<void> {
  const status = { is: 'ready' } as const;
  if (Buffer.byteLength(jsonText(made)) <= METADATA_MAX) {
    await session.update({ status, metadata: made as unknown as Json });
    return;
  }
  await session.set(STATE, made);
  await session.update({ status });
}

/** The handshake that is stored with a session. Undefined: its `initialize` was never answered. */
export async function storedHandshake(
  session: Session,
  { metadata }: SessionView,
): Promise<Handshake | undefined> {
  return (metadata as Handshake | undefined) ?? (await session.get<Handshake>(STATE));
}

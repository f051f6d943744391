// The session of this process where it is an instance of a server on stdio.
import type { Session } from './session.js';

/** What gives the session of each `Sessiond` that holds one: of the process's host. */
const holders = new Map<object, () => Session | undefined>();

/** From now on `holder` may hold a session, which `session` gives. */
export function hold(holder: object, session: () => Session | undefined): void {
  holders.set(holder, session);
}

/** The one session that this process holds. Undefined: it holds none, or several. */
export function instanceSession(): Session | undefined {
  const held = [...holders.values()].flatMap((session) => session() ?? []);
  return held.every(({ id }) => id === held[0]!.id) ? held[0] : undefined;
}

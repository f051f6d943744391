// Room in a session whose owner has used up the memory.
import { isOfMemory } from './errors.js';

/** How many events stay in such a session: many small ones, and where that does not help, few. */
const KEPT_EVENTS = [256, 16];

/** Makes a change. Where there is no memory for it, `prune` deletes the oldest events of the session first. */
export async function withRoom<T>(
  prune: (keep: number) => Promise<unknown>,
  change: () => Promise<T>,
): Promise<T> {
  for (const keep of KEPT_EVENTS) {
    try {
      return await change();
    } catch (error) {
      if (!isOfMemory(error)) throw error;
    }
    await prune(keep);
  }
  return change();
}

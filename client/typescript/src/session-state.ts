// The state of a session: JSON values by key, each with a version.
import type { Connection } from './connection.js';
import { isCode, SessiondError } from './errors.js';
import { SessionCalls } from './session-calls.js';
import type { StateEntry, StateKeyInfo, StateWrite } from './types.js';
import { jsonText, only, present, requestId, type Wire } from './wire.js';

/** The calls about the state of a session. */
export class SessionState extends SessionCalls {
  /** The value of a key; undefined where it has none. */
  async get<T = unknown>(key: string): Promise<T | undefined> {
    return (await this.entry<T>(key)).value;
  }

  /** A key with its value and its version, which is 0 where there is no value. */
  async entry<T = unknown>(key: string): Promise<StateEntry<T>> {
    return only(await this.entries<T>([key]));
  }

  /**
   * 1 to 50 keys at once, in their order. `invalid_argument` also where the values have more than 3 MiB
   * together.
   */
  async entries<T = unknown>(keys: string[]): Promise<StateEntry<T>[]> {
    const read = (await this.read('read_state', { keys })) as Wire[];
    return read.map(({ key, version, value }) => ({
      key,
      version: BigInt(version),
      ...(value == null ? {} : { value: JSON.parse(value) as T }),
    }));
  }

  /** All keys that have a value, in their order. */
  async keys(): Promise<StateKeyInfo[]> {
    const all = await this.pages('list_state', (last) => last['key']);
    return all.map(({ key, version, bytes, expires_ms }) => ({
      key,
      version: BigInt(version),
      bytes,
      ...(expires_ms == null ? {} : { expiresMs: Number(expires_ms) }),
    }));
  }

  /**
   * Writes a value that JSON has, whatever was there. Returns its version. With `expiresMs` it goes by itself
   * after so many ms, at least 1; a daemon that is older than that keeps it.
   */
  async set(key: string, value: unknown, { expiresMs }: { expiresMs?: number } = {}): Promise<bigint> {
    const write = { key, value: checked(value), ...(expiresMs === undefined ? {} : { expiresMs }) };
    return only(await this.write([write])).version;
  }

  /** Removes a value, if there is one. */
  async remove(key: string): Promise<void> {
    await this.write([{ key }]);
  }

  /**
   * Writes a value only if the key is at this version; 0n: only if it has none. `undefined` removes it.
   * Returns the new version.
   * `version_conflict`: somebody else has written since. `uncertain`: so it may be, or this was written.
   */
  async compareAndSet(key: string, expected: bigint, value: unknown): Promise<bigint> {
    return only(await this.write([{ key, value, expected }])).version;
  }

  /** Writes and removes 1 to 50 values, all or none. Returns their versions, in the order of the writes. */
  async write(writes: StateWrite[]): Promise<{ key: string; version: bigint }[]> {
    const request = requestId();
    const wire = (takesExpiry: boolean) =>
      writes.map(({ key, value, expected, expiresMs }) =>
        present({
          key,
          value: value === undefined ? undefined : jsonText(value),
          expected: expected === undefined ? undefined : String(expected),
          expires_ms: expiresMs === undefined || !takesExpiry ? undefined : String(expiresMs),
        }),
      );
    // What JSON has not is refused before anything is sent.
    wire(true);
    let tries = 0;
    const params = async (connection: Connection) => {
      tries++;
      return {
        of: await this.named(),
        writes: wire(connection.hello.takesExpiry),
        ...(connection.hello.takesRequests ? { request } : {}),
      };
    };
    try {
      const written = (await this.call({ method: 'write_state', params })) as Wire[];
      return written.map(({ key, version }) => ({ key, version: BigInt(version) }));
    } catch (error) {
      if (tries < 2 || !isCode(error, 'version_conflict')) throw error;
      // What stands in the way may be what the first attempt has written.
      const lost = `the answer to a write was lost, and then ${error.message}`;
      throw new SessiondError('uncertain', `${lost}: whether it was carried out is not known`, error.fields);
    }
  }
}

/** `undefined` would remove the key. */
function checked(value: unknown): unknown {
  if (value === undefined)
    throw new SessiondError('invalid_argument', '`undefined` is no JSON; `remove` deletes a value');
  return value;
}

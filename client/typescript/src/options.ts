// What a server may ask for. Every default is right for a server that its host starts once.

/** How long one call may take in all by default, in ms. */
export const CALL_TIMEOUT_MS = 10_000;

/** Which session to get where the host has, or had, several servers that are alike (docs/sessions.md). */
export type Siblings = 'fresh' | 'successor' | 'oldest' | 'never';

/** Where the library's lines go. The first argument says how serious a line is. */
export type Logger = (level: 'info' | 'warn', line: string) => void;

/** How the daemon is reached. */
export interface Options {
  /** The runtime directory. By default `MCP_SESSIOND_DIR`, else the one that follows from the uid. */
  directory?: string;
  /** Whether a daemon is started where none runs. By default it is. */
  start?: boolean;
  /**
   * The executable of the daemon. By default `MCP_SESSIOND_BIN`, else `mcp-sessiond` beside this runtime's
   * own, else in `PATH`.
   */
  binary?: string;
  /**
   * How long one call may take in all, with connecting, starting the daemon and reconnecting, in ms: {@link
   * CALL_TIMEOUT_MS}.
   */
  timeoutMs?: number;
  /** Where lines are logged: standard error by default, since standard output may be the host's. */
  log?: Logger;
}

/** What a server on stdio says of itself when it claims its session. */
export interface ClaimOptions extends Options {
  /**
   * Takes the place of directory and environment in what tells this instance from others of its host: 1 to
   * 128 bytes.
   */
  label?: string;
  /** What the host calls itself (`clientInfo.name`): tells sessions apart, too. */
  client?: string;
  /** The name of this server's entry in the host's file: what the entry was before it was edited ends. */
  entry?: string;
  /** What to get where the host has, or had, several servers that are alike. */
  siblings?: Siblings;
  /** Claims for the ancestor with this pid, not for the process itself. */
  instance?: number;
}

/** Writes a line to standard error. */
const toStandardError: Logger = (_, line) => {
  process.stderr.write(`${line}\n`);
};

/** Logs a warning. */
export type Warn = (line: string) => void;

/** The same logger, without an effect on the server where it throws. */
export function harmless(log: Logger = toStandardError): Logger {
  return (level, line) => {
    try {
      log(level, line);
    } catch {
      // There is nowhere to report it.
    }
  };
}

/** Warnings on a logger. */
export function warner(log?: Logger): Warn {
  const logged = harmless(log);
  return (line) => logged('warn', `mcp-sessiond: ${line}`);
}

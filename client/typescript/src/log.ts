// Every line that this library logs about tokens. The fixed ones are those of proto/PROTOCOL.md: people grep
// for them.
import type { SessiondError } from './errors.js';
import { harmless, type Logger } from './options.js';

const LABELS = 'give each entry a label of its own';

const LOST: Record<string, string> = {
  sibling:
    'another server with the same command, directory and environment runs under this host, so mcp-sessiond ' +
    `can't tell which of them the earlier session belonged to; ${LABELS}, or say \`siblings: 'successor'\` where the host ` +
    'closes a server before it starts the next',
  several:
    'several earlier servers with the same command, directory and environment were left, and ' +
    `can't be told apart; ${LABELS}`,
  crowd:
    'this host has run three or more servers with this command, directory and environment at once, ' +
    `so none of them is resumed until it exits; ${LABELS}`,
  exited: 'the previous server exited while no host was connected',
  records:
    'the records of an earlier daemon were lost (`sessions.db`), ' +
    'so nobody knows whether this server had run before',
  killed: 'the process that kept the previous server has ended, and the server with it',
  hung: 'the process that kept the previous server did not answer, so the daemon has ended it, and the server with it',
  lingered:
    'no host came back for the previous server in time (`backends.linger_ms`; ' +
    '`backends.named_linger_ms` where it has a name)',
  abandoned:
    'the host had closed the previous server, and did not come back for it in time ' +
    '(`backends.closed_linger_ms`; `backends.named_linger_ms` where it has a name)',
  stopped: 'the previous server was stopped',
  conversation: 'the previous server belonged to a conversation that the host has left',
  edited: 'the command line or the environment is not that of the previous server',
  quota: 'the host has as many sessions as it may (`sessions_per_owner`), and this one was free the longest',
  closed:
    'the host closed the previous server, and as far as is known it does not close a server to reconnect',
  conversations: 'this host runs many conversations in one process',
  unknown_host: "nothing is known of this host, so a reconnect can't be told from the end of a conversation",
  closed_earlier: 'the host had closed the previous server, and did not start the next one at once',
};

/** The lines, on a logger. */
export class TokenLog {
  readonly #log: Logger;

  constructor(log?: Logger) {
    this.#log = harmless(log);
  }

  absent(): void {
    this.#log('info', 'Token file not found (first run or clean slate)');
  }

  corrupted(): void {
    this.#log('warn', 'Token file corrupted, treating as stale');
  }

  unverified(): void {
    this.#log(
      'warn',
      'Could not verify parent process start time, session resume disabled for this instance',
    );
  }

  rejected(): void {
    this.#log('warn', 'Broker rejected resume token, starting fresh session');
  }

  resumed(): void {
    this.#log('info', 'Session resumed successfully');
  }

  /** There may well have been a token, or be one in a session that another instance holds. */
  lost(because: string): void {
    this.#log('warn', `Nothing is resumed: ${LOST[because] ?? because}`);
  }

  never(): void {
    this.#log(
      'warn',
      'Nothing is resumed, now or later: this host serves several clients from one process ' +
        '(`siblings` is `never`)',
    );
  }

  doubtful(): void {
    this.#log(
      'warn',
      "Nothing is resumed, now or later: what this process was started with can't be read; " +
        '`mcp-sessiond doctor --for PID` says which part',
    );
  }

  writeFailed(sentence: string): void {
    const fixed = 'Failed to write token file: ';
    this.#log('warn', sentence.startsWith(fixed) ? sentence : `${fixed}${sentence}`);
  }

  notKept(why: string): void {
    this.#log('warn', `Resume token not stored: ${why}`);
  }

  notDeleted(why: string): void {
    this.#log('warn', `Rejected resume token not deleted: ${why}`);
  }

  disabled(reason: SessiondError): void {
    this.#log('warn', `Session resume disabled: ${reason.message}`);
  }
}

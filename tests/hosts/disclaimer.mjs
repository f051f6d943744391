// An imitation of the helper under which Claude Desktop on macOS starts each server, and which stays alive as long as the server does:
//
//   disclaimer disclaimer.mjs --pgroup -- COMMAND ARGUMENT…
import { spawn } from 'node:child_process';

const [command, ...args] = process.argv.slice(process.argv.indexOf('--') + 1);
const server = spawn(command, args, { stdio: 'inherit', detached: true });
for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.on(signal, () => server.kill(signal));
server.on('exit', (code, signal) => process.exit(signal ? 1 : code));

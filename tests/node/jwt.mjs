// Makes keys, and tokens signed by them: node jwt.mjs
//
// The first line that it prints is the JSON Web Key Set of three keys: `rs`, `es` and `ed`. Each line that it reads is
// {"key": NAME, "header": {…}, "claims": {…}}, and it prints the token. tokens.mjs says which other names a key may have.
import readline from 'node:readline';
import { keys, token } from './tokens.mjs';

console.log(keys);
for await (const line of readline.createInterface({ input: process.stdin })) {
  const { key, header, claims } = JSON.parse(line);
  console.log(token(key, header, claims));
}

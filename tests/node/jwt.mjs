// Makes keys, and tokens signed by them: node jwt.mjs
//
// The first line that it prints is the JSON Web Key Set of three keys: `rs`, `es` and `ed`. Each line that it reads is
// {"key": NAME, "header": {…}, "claims": {…}}, and it prints the token. `key` may also be `none` (no signature), or `hmac` (signed by
// HMAC with the public RSA key as the secret).
import { createHmac, generateKeyPairSync, sign } from 'node:crypto';
import readline from 'node:readline';

const pairs = {
  rs: { alg: 'RS256', ...generateKeyPairSync('rsa', { modulusLength: 2048 }) },
  es: { alg: 'ES256', ...generateKeyPairSync('ec', { namedCurve: 'P-256' }) },
  ed: { alg: 'EdDSA', ...generateKeyPairSync('ed25519') },
};
const keys = Object.entries(pairs).map(([kid, { publicKey }]) => ({ kid, use: 'sig', ...publicKey.export({ format: 'jwk' }) }));
console.log(JSON.stringify({ keys }));

const encoded = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
const signature = (key, said) => {
  if (key === 'none') return Buffer.alloc(0);
  if (key === 'hmac') {
    const secret = pairs.rs.publicKey.export({ type: 'spki', format: 'pem' });
    return createHmac('sha256', secret).update(said).digest();
  }
  const { alg, privateKey } = pairs[key];
  return sign(alg === 'EdDSA' ? null : 'sha256', Buffer.from(said), { key: privateKey, dsaEncoding: 'ieee-p1363' });
};
for await (const line of readline.createInterface({ input: process.stdin })) {
  const { key, header, claims } = JSON.parse(line);
  const said = `${encoded({ alg: pairs[key]?.alg, kid: key, ...header })}.${encoded(claims)}`;
  console.log(`${said}.${signature(key, said).toString('base64url')}`);
}

// Keys of three kinds, and tokens that are signed by them (JSON Web Tokens, RFC 7519).
import { createHmac, generateKeyPairSync, sign } from 'node:crypto';

const pairs = {
  rs: { alg: 'RS256', ...generateKeyPairSync('rsa', { modulusLength: 2048 }) },
  es: { alg: 'ES256', ...generateKeyPairSync('ec', { namedCurve: 'P-256' }) },
  ed: { alg: 'EdDSA', ...generateKeyPairSync('ed25519') },
};

// The public keys, as a JSON Web Key Set.
export const keys = JSON.stringify({
  keys: Object.entries(pairs).map(([kid, { publicKey }]) => ({ kid, use: 'sig', ...publicKey.export({ format: 'jwk' }) })),
});

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

// A token. `key` may also be `none` (no signature), or `hmac` (signed by HMAC with the public RSA key as the secret).
export function token(key, header, claims) {
  const said = `${encoded({ alg: pairs[key]?.alg, kid: key, ...header })}.${encoded(claims)}`;
  return `${said}.${signature(key, said).toString('base64url')}`;
}

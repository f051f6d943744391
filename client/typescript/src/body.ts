// The body of a request, which is read here before the SDK has it.

/** The largest body, in bytes: that of the official SDK. */
export const BODY_MAX = 4 * 1024 * 1024;

/** All of a body. Undefined where it is larger than {@link BODY_MAX}. */
export async function wholeBody(body: AsyncIterable<Uint8Array>): Promise<Buffer | undefined> {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const part of body) {
    bytes += part.length;
    if (bytes > BODY_MAX) return undefined;
    parts.push(part);
  }
  return Buffer.concat(parts);
}

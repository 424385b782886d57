// Requests to the service.

/** The service ends each request within 12 s. */
const PATIENCE_MS = 15_000;

/**
 * A reply: `ok`, `status`, `code` of a refusal or null, `retryMs`, `body`, `dateMs`, the service's time to the second, and
 * whether it tells times. `token` may be null.
 * Without any reply the code is `unavailable`, as that of the service: the outcome is unknown.
 */
export async function request(method, path, token, body, more) {
  const headers = { ...more };
  if (token !== null) headers.authorization = `Bearer ${token}`;
  if (body) headers['content-type'] = 'application/json';
  try {
    const reply = await fetch(path, { method, headers, signal: AbortSignal.timeout(PATIENCE_MS), cache: 'no-store', body: body && JSON.stringify(body) });
    const text = await reply.text();
    const isPicture = (reply.headers.get('content-type') ?? '').startsWith('image/');
    const read = text === '' ? {} : isPicture ? { picture: text } : JSON.parse(text);
    return {
      ok: reply.ok, status: reply.status, code: reply.ok ? null : read.code ?? 'unavailable', body: read,
      retryMs: 1000 * Number(reply.headers.get('retry-after') ?? 0), dateMs: Date.parse(reply.headers.get('date')), timed: reply.headers.has('server-timing'),
    };
  } catch {
    return { ok: false, status: 0, code: 'unavailable', retryMs: 0, body: {} };
  }
}

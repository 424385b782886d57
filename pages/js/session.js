// The administrator's token of this tab. The code in a printed link is exchanged for it, once.

const TOKEN = 'flash-sale.admin';
/** The service ends each request within 12 s. */
const PATIENCE_MS = 15_000;

export const session = {
  get token() {
    return sessionStorage.getItem(TOKEN);
  },

  set token(token) {
    sessionStorage.setItem(TOKEN, token);
  },

  leave() {
    sessionStorage.removeItem(TOKEN);
  },

  headers() {
    return this.token === null ? {} : { authorization: `Bearer ${this.token}` };
  },

  /** Uses the code behind the `#`, and takes it out of the address. Returns the code of a refusal, or null. */
  async enter() {
    const code = new URLSearchParams(location.hash.slice(1)).get('code');
    if (code === null) return this.token === null ? 'no_link' : null;
    history.replaceState(null, '', location.pathname);
    const reply = await send('POST', '/demo/sessions', { code });
    if (reply.ok) this.token = reply.body.token;
    return reply.ok || this.token !== null ? null : reply.code;
  },
};

/** The state under a path, for a page without a stream: what it tells. After the refusals in `final` there is no other try. */
export async function ask(path, final) {
  const { ok, body, code } = await send('GET', path);
  if (ok) return { line: 'asked', event: body };
  return final.includes(code) ? { refused: code } : { line: 'lost' };
}

/** A reply: `ok`, `code` of a refusal, `body`. Without any reply the code is `unavailable`. */
export async function send(method, path, body, more = {}) {
  const headers = { ...more, ...(path === '/demo/sessions' ? {} : session.headers()) };
  if (body) headers['content-type'] = 'application/json';
  try {
    const reply = await fetch(path, { method, headers, signal: AbortSignal.timeout(PATIENCE_MS), cache: 'no-store', body: body && JSON.stringify(body) });
    const text = await reply.text();
    const read = text === '' ? {} : JSON.parse(text);
    return { ok: reply.ok, status: reply.status, code: reply.ok ? null : read.code ?? 'unavailable', body: read };
  } catch {
    return { ok: false, status: 0, code: 'unavailable', body: {} };
  }
}

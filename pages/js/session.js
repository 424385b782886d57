// The administrator's token of this tab. The code in a printed link is exchanged for it, once.

import { request } from './request.js';
import { ofTab } from './store.js';

const TOKEN = 'flash-sale.admin';

export const session = {
  get token() {
    return ofTab.get(TOKEN);
  },

  set token(token) {
    ofTab.set(TOKEN, token);
  },

  /** Uses the token of a form. Returns the code of a refusal, or null: no header takes other characters. */
  use(event) {
    event.preventDefault();
    const token = new FormData(event.target).get('token').trim();
    if (!/^[!-~]+$/.test(token)) return 'invalid_token';
    this.token = token;
    return null;
  },

  leave() {
    ofTab.remove(TOKEN);
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

/** Sends a request with the token of this tab. */
export function send(method, path, body, more) {
  return request(method, path, path === '/demo/sessions' ? null : session.token, body, more);
}

// A link that is opened in a tab with the page loads nothing by itself.
window.addEventListener('hashchange', () => location.hash.startsWith('#code=') && location.reload());

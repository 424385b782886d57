// The operations of the service: reads their document, opens the one that the address names, and sends what is filled in.

import { render } from '../vendor/lit-html.js';
import { Api } from '../js/api.js';
import { servedPages } from '../js/bar.js';
import desk from '../js/desk.js';
import { request as ask } from '../js/request.js';
import { session } from '../js/session.js';
import { turnTheme, useTheme } from '../js/theme.js';
import { Words } from '../js/words.js';
import { Document, request } from './document.js';
import texts from './texts.js';
import { page } from './view.js';

/** The service ends each request within 12 s. */
const PATIENCE_MS = 15_000;

const api = new Api();
const words = new Words(texts, desk);
/** `tries` has the form of each operation that was opened, by id, and the `reply` to it. */
const state = { document: null, open: new Set(), tries: {}, token: '', isDemo: false, filter: '', served: [], line: 'connecting' };

const does = {
  toggle(id, { target }) {
    if (target.open === state.open.has(id)) return;
    if (!target.open) state.open.delete(id);
    else {
      open(id);
      history.replaceState(null, '', `#${id}`);
    }
    show();
  },
  filter({ target }) {
    become({ filter: target.value });
  },
  useToken({ target }) {
    become({ token: target.value });
  },
  fill(id, name, { target }) {
    state.tries[id].values[name] = target.value;
    show();
  },
  write(id, { target }) {
    state.tries[id].body = target.value;
    show();
  },
  async copy(place) {
    const element = document.getElementById(place);
    getSelection().selectAllChildren(element);
    // Only pages with TLS, or of this machine, may write what is to be pasted; the others leave it selected.
    await navigator.clipboard?.writeText(element.textContent).then(() => say('copied'), () => {});
  },
  async send(id, event) {
    event.preventDefault();
    const attempt = state.tries[id];
    if (attempt.isBusy) return;
    attempt.isBusy = true;
    show();
    attempt.reply = await answered(state.document.operation(id), attempt);
    attempt.isBusy = false;
    show();
    say('answer', attempt.reply.status || words.of('no_answer'), attempt.reply.code ?? '');
  },
  turnLanguage() {
    words.turn();
    show();
  },
  turnTheme,
};

function become(change) {
  Object.assign(state, change);
  show();
}

function show() {
  document.title = `${words.of('title')} · flash-sale`;
  render(page(state, words, does), document.getElementById('page'));
}

function say(key, ...more) {
  document.getElementById('said').textContent = [words.of(key), ...more].join(' ');
}

function open(id) {
  state.open.add(id);
  state.tries[id] ??= { ...state.document.form(state.document.operation(id)), reply: null, isBusy: false };
}

/** Opens what the address names, and goes there. */
function reveal() {
  const id = location.hash.slice(1);
  const isOperation = state.document.operation(id) !== undefined;
  if (isOperation) {
    open(id);
    become({ filter: '' });
  }
  const place = document.getElementById(id);
  place?.scrollIntoView();
  if (isOperation) place.querySelector('summary').focus();
}

/** The service's answer: status, code of a refusal, time, and body. */
async function answered(operation, attempt) {
  const { path, headers, body } = request(operation, attempt);
  // No header takes other characters.
  const token = state.token.replace(/[^!-~]/g, '');
  if (token !== '') headers.authorization = `Bearer ${token}`;
  const began = performance.now();
  const took = () => Math.round(performance.now() - began);
  try {
    const reply = await fetch(path, { method: operation.method.toUpperCase(), headers, body, cache: 'no-store', signal: AbortSignal.timeout(PATIENCE_MS) });
    const text = await reply.text();
    const isJson = /json/.test(reply.headers.get('content-type')) && text !== '';
    const read = isJson ? JSON.parse(text) : {};
    return { status: reply.status, code: reply.ok ? null : read.code, ms: took(), text: isJson ? JSON.stringify(read, null, 2) : text };
  } catch {
    return { status: 0, ms: took(), text: '' };
  }
}

useTheme();
show();
const [served, reply] = await Promise.all([servedPages(), ask('GET', '/openapi.json', null)]);
const isDemo = served.includes('/storm');
// The demo lets each browser in, as the shopper that it is on the page of a sale.
if (isDemo) await api.enter();
become({ served, isDemo, line: reply.ok ? 'live' : 'lost', document: reply.ok ? new Document(reply.body) : null, token: session.token ?? api.token ?? '' });
if (reply.ok) {
  reveal();
  window.addEventListener('hashchange', reveal);
}

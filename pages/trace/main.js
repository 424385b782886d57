// One claim, followed: asks for its steps until all are known, and paints.

import { render } from '../vendor/lit-html.js';
import { Api } from '../js/api.js';
import { servedPages } from '../js/bar.js';
import desk from '../js/desk.js';
import { send, session } from '../js/session.js';
import { turnTheme, useTheme } from '../js/theme.js';
import { Words } from '../js/words.js';
import texts from './texts.js';
import { page } from './view.js';

/** Pause between two questions while steps are to come. */
const LOOK_MS = 400;
/** Questions after the row is there, for 5 s: a worker of the process has noted its batch by then, if it is to note it at
 * all. One whose time was over during the commit notes its next try. */
const LATE_LOOKS = 12;
/** Pause before the question is repeated after a refusal that jobs, such as `unavailable`. */
const AGAIN_MS = 3000;
const AGAIN = ['unavailable', 'rate_limited', 'recovering', 'overloaded'];

const api = new Api();
const words = new Words(texts, desk);
const [, order] = location.pathname.match(/^\/claim\/([^/]+)$/) ?? [];
/** `line` says how the page stands to the service; `refused` is the code of the last refusal. */
const state = { order, trace: null, trip: api.trip(order), refused: null, served: [], line: 'connecting' };
let late = 0;
let said = null;

const does = {
  turnLanguage() {
    words.turn();
    show();
  },
  turnTheme,
};

function show() {
  document.title = `${words.of('bar.trace')} · flash-sale`;
  render(page(state, words, does), document.getElementById('page'));
}

/** Speaks once that all is known, or why nothing will be. */
function say(key) {
  if (key === said) return;
  said = key;
  document.getElementById('said').textContent = words.of(key);
}

/** The claim as its shopper may see it; a tab of an administrator sees each one. */
async function ask() {
  const path = `/v1/orders/${order}/trace`;
  const own = api.token === null ? null : await api.trace(order);
  const isFinal = own !== null && (!['not_traced', 'invalid_token'].includes(own.code) || session.token === null);
  return isFinal ? own : send('GET', path);
}

async function follow() {
  const reply = await ask();
  const jobs = AGAIN.includes(reply.code);
  state.line = reply.code === 'unavailable' ? 'lost' : 'live';
  state.refused = reply.ok ? null : reply.code;
  if (reply.ok) state.trace = reply.body;
  show();
  const isKnown = reply.ok && reply.body.steps.every((step) => step.took_us !== null);
  if (reply.ok && reply.body.written_at !== null) late += 1;
  if (isKnown || late > LATE_LOOKS) return say(isKnown ? 'said.known' : 'unknown');
  if (!reply.ok && !jobs) return say(words.has(`refused.${reply.code}`) ? `refused.${reply.code}` : 'refused.other');
  setTimeout(follow, jobs ? AGAIN_MS : LOOK_MS);
}

useTheme();
show();
state.served = await servedPages();
follow();

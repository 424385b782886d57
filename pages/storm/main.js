// The page of storms: puts the parts together, and paints.

import { render } from '../vendor/lit-html.js';
import { servedPages } from '../js/bar.js';
import desk from '../js/desk.js';
import { ask, send, session } from '../js/session.js';
import { Stream } from '../js/stream.js';
import { turnTheme, useTheme } from '../js/theme.js';
import { Words } from '../js/words.js';
import { pointOf } from './curve.js';
import { download } from './report.js';
import { forgetRuns, keepRun, pastRuns } from './runs.js';
import { paint } from './squares.js';
import texts from './texts.js';
import { headOf } from './verdict.js';
import { page } from './view.js';

const FINAL = ['invalid_token', 'forbidden', 'not_found', 'wrong_host'];
const askLast = () => ask('/demo/storms/last', FINAL);

const words = new Words(texts, desk);
const state = { line: 'connecting', heardAt: 0, served: [], locked: null, storm: null, points: [], past: pastRuns(), plan: { shoppers: 10_000, stock: 1_000, over_s: 3, twice_percent: 10 }, problem: null, asking: false, each: 1, quiet: null };
let said = null;
/** What the storm has got to, and since when. */
let moved = { to: '', at: 0, time: 0 };

const does = {
  async start(event) {
    event.preventDefault();
    if (state.asking || (state.storm && state.storm.stage !== 'done')) return;
    const fields = Object.fromEntries([...new FormData(event.target)].map(([name, value]) => [name, Number(value)]));
    [state.plan, state.asking, state.problem] = [fields, true, null];
    show();
    const reply = await send('POST', '/demo/storms', fields);
    [state.asking, state.problem] = [false, reply.code];
    await askNow();
  },
  async stop() {
    const reply = await send('DELETE', '/demo/storms/current');
    // It may have ended by itself meanwhile.
    state.problem = reply.code === 'no_storm' ? null : reply.code;
    await askNow();
  },
  /** Breaks something in the middle of the storm. */
  async trouble(trouble) {
    if (!state.storm.troubles.includes(trouble)) return;
    const reply = await send('POST', '/demo/storms/current/troubles', { trouble });
    state.problem = reply.code === 'no_storm' ? null : reply.code;
    await askNow();
  },
  report: (run) => download(run, words),
  forget() {
    forgetRuns();
    state.past = [];
    show();
  },
  useToken(event) {
    state.locked = session.use(event);
    show();
    if (state.locked === null) follow();
  },
  turnLanguage() {
    words.turn();
    show();
  },
  turnTheme() {
    turnTheme();
    show();
  },
};

/** Time without an answer, or without a row, that is worth a word. */
const QUIET_MS = 3000;

/** How long nothing has moved, and since when: a crowd that is not answered looks like one that is. */
function quietOf({ stage, answered, rows }) {
  const to = `${stage} ${stage === 'running' ? answered : rows}`;
  // A number that can't be had is no progress.
  if (to !== moved.to && (stage === 'running' || rows !== null)) moved = { to, at: performance.now(), time: Date.now() };
  const ms = performance.now() - moved.at;
  if (!['running', 'settling'].includes(stage) || ms < QUIET_MS) return null;
  return { seconds: Math.floor(ms / 1000), since: new Date(moved.time).toLocaleTimeString('en-GB') };
}

function show() {
  state.quiet = state.storm && quietOf(state.storm);
  document.title = `${words.of('bar.storm')} · flash-sale`;
  render(page(state, words, does), document.getElementById('page'));
  const canvas = document.querySelector('.squares canvas');
  if (!canvas || !state.storm) return;
  const each = paint(canvas, state.storm);
  if (each === state.each) return;
  state.each = each;
  show();
}

/** Speaks each stage and the verdict once. What the page begins with is read like any page. */
function say() {
  if (!state.storm) return;
  const head = headOf(state.storm);
  const key = head ? head.key : state.quiet ? 'quiet' : `stage.${state.storm.stage}`;
  const now = `${state.storm.id} ${key}`;
  if (said !== null && said !== now) document.getElementById('said').textContent = words.of(key);
  said = now;
}

/** Shows what was done at once, also where no stream tells it. */
async function askNow() {
  heard(state.line === 'asked' ? await askLast() : {});
}

/** Notes what the storm has come to, for its curve, and keeps one that is over. */
function note(storm) {
  if (storm === null) return;
  if (storm.id !== state.storm?.id) state.points = [];
  if (!(storm.elapsed_ms <= state.points.at(-1)?.t_ms) && storm.stage !== 'arming') state.points.push(pointOf(storm));
  if (storm.stage !== 'done') return;
  keepRun(storm, state.points);
  state.past = pastRuns();
}

function heard({ event, line, refused }) {
  if (refused) {
    session.leave();
    state.locked = refused;
  }
  if (line) state.line = line;
  if (event !== undefined) {
    note(event);
    [state.storm, state.heardAt] = [event, performance.now()];
    if (said === null) said = '';
  }
  show();
  if (event !== undefined) say();
}

function follow() {
  new Stream({ path: '/demo/storms/current', event: 'storm', final: FINAL, ask: askLast, headers: () => session.headers() }, heard);
}

async function start() {
  useTheme();
  [state.locked, state.served] = await Promise.all([session.enter(), servedPages()]);
  show();
  window.addEventListener('resize', show);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', show);
  if (state.locked === null) follow();
  // The age of the numbers grows by itself.
  setInterval(() => (state.line !== 'live' || state.quiet) && show(), 1000);
}

start();

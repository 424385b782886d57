// The page of storms as templates. Nothing here keeps state or calls the service.

import { html, nothing, svg } from '../vendor/lit-html.js';
import { bar, locked } from '../js/bar.js';
import { curve } from './curve.js';
import { OUTCOMES } from './squares.js';
import { FAULTS, headOf } from './verdict.js';

const STAGES = ['arming', 'running', 'settling', 'checking', 'done'];
/** Bounds of the service. */
const FIELDS = [['shoppers', 1, 100_000], ['stock', 1, 100_000], ['over_s', 0, 60], ['twice_percent', 0, 100]];

const TROUBLES = ['kill_worker', 'freeze_redis', 'empty_redis'];

const ICONS = {
  good: svg`<path d="m4.5 12.5 5 5 10-11"/>`,
  warn: svg`<path d="M12 3.5 22 20.5H2zM12 10v4.5M12 17.3v.4"/>`,
  bad: svg`<path d="m6 6 12 12M18 6 6 18"/>`,
  plain: svg`<path d="M7 7h10v10H7z"/>`,
  done: svg`<path d="m4.5 12.5 5 5 10-11"/>`,
  now: svg`<circle cx="12" cy="12" r="8"/><path d="M12 4a8 8 0 0 1 0 16z" fill="currentColor"/>`,
  next: svg`<circle cx="12" cy="12" r="8"/>`,
};

export function page(state, words, does) {
  return html`
    <a class="skip" href="#storm">${words.of('skip')}</a>
    ${bar('/storm', state.served, state.line, words, does)}
    ${state.line === 'asked' || (state.line === 'lost' && state.storm) ? html`<aside class="lost">${words.of(state.line)} <span class="aside">${words.of('age')} <b>${Math.round((performance.now() - state.heardAt) / 1000)}</b></span></aside>` : nothing}
    <main class="desk" id="storm" tabindex="-1">
      ${state.locked === null ? open(state, words, does) : locked(state.locked, words, does)}
    </main>`;
}

function open({ storm, points, past, plan, problem, asking, each, quiet }, words, does) {
  return html`
    ${poster(storm, plan, quiet, words)}
    ${form(storm, plan, problem, asking, words, does)}
    ${storm ? trouble(storm, words, does) : nothing}
    ${storm ? progress(storm, each, words) : html`<section class="panel"><p class="none">${words.of('none')}</p></section>`}
    ${storm && storm.stage !== 'arming' ? part('curve', curve(storm, points, words), words) : nothing}
    ${storm?.verdict ? part('proof', numbers(storm.verdict, words), words) : nothing}
    ${past.length > 0 ? part('past', runs(past, words, does), words, html`<button class="other" type="button" id="forget" @click=${does.forget}>${words.of('past.forget')}</button>`) : nothing}`;
}

function part(key, content, words, aside = nothing) {
  return html`<section class="panel" aria-labelledby=${key}><div class="head"><h2 id=${key}>${words.of(key)}</h2>${aside}</div>${content}</section>`;
}

/** What may be broken in the middle of a storm, where the demo has servers of its own. */
function trouble(storm, words, does) {
  if (!['running', 'settling'].includes(storm.stage) || storm.troubles.length + storm.met.length === 0) return nothing;
  return part('trouble', html`<div class="troubles">${TROUBLES.map((name) => html`
    <p><button class="other" type="button" id="do-${name}" aria-disabled=${!storm.troubles.includes(name)} @click=${() => does.trouble(name)}>${words.of(`trouble.${name}`)}</button><span class="aside">${words.of(`trouble.${name}.more`)}</span></p>`)}</div>`, words, html`<p class="aside">${words.of('trouble.more')}</p>`);
}

/** Past storms, each with its report. */
function runs(past, words, does) {
  return html`<ul class="past">${past.map((run) => {
    const { storm } = run;
    const { key, tone } = headOf(storm);
    const over = oversold(storm);
    return html`<li data-id=${storm.id}>
      <span class="aside">${words.date(Number(storm.id), Date.now())}</span>
      <b>${poem(storm, words)}</b>
      <span class="how" data-tone=${tone}>${picture(tone)}${words.of(key)}</span>
      <span class="aside">${storm.met.map((it) => words.of(`met.${it.trouble}`)).join(', ')}${over > 0 ? html` <span class="wrong">${words.of('past.naive').replace('#', words.number.format(over))}</span>` : nothing}</span>
      <button class="other" type="button" @click=${() => does.report(run)}>${words.of('report')}<span class="unseen">: ${words.date(Number(storm.id), Date.now())}</span></button></li>`;
  })}</ul>`;
}

function form(storm, plan, problem, asking, words, does) {
  const busy = asking || (storm !== null && storm.stage !== 'done');
  return html`
    <form class="panel" aria-labelledby="crowd" @submit=${does.start}>
      <div class="head"><h2 id="crowd">${words.of('crowd')}</h2><p class="aside">${words.of('crowd.more')}</p></div>
      <div class="fields">
        ${FIELDS.map(([name, min, max]) => html`
          <label>${words.of(`plan.${name}`)}<input name=${name} type="number" inputmode="numeric" required step="1" min=${min} max=${max} .value=${String(plan[name])} ?readonly=${busy}></label>`)}
        <div class="deeds"><button class="go" aria-disabled=${busy}>${words.of(busy ? 'busy' : 'start')}</button>
          ${storm && storm.stage !== 'done' ? html`<button class="other" type="button" @click=${does.stop}>${words.of('stop')}</button>` : nothing}</div>
      </div>
      ${problem ? html`<p class="deed" role="alert">${words.of(words.has(`problem.${problem}`) ? `problem.${problem}` : 'problem.other')}</p>` : nothing}
    </form>`;
}

/** What is asked and what has come of it: while the storm goes on, and as the verdict. A number without its evidence is none. */
function poster(storm, plan, quiet, words) {
  const head = headOf(storm) ?? { tone: 'plain' };
  return html`
    <section class="panel poster verdict" data-tone=${head.tone} data-done=${head.key ? '' : nothing} aria-label=${words.of('stage.done')}>
      ${title(storm ?? plan, words)}
      ${storm ? pair(storm, words, head.key ? html`<h2 id="verdict" tabindex="-1">${picture(head.tone)}${words.of(head.key)}</h2>` : nothing) : nothing}
      ${quiet ? html`<p class="deed" id="quiet">${words.of(`quiet.${storm.stage}`).replace('{s}', words.number.format(quiet.seconds)).replace('{t}', quiet.since)} ${['left', 'rows'].filter((key) => storm[key] === null).map((key) => words.of(`quiet.${key}`)).join(' ')}</p>` : nothing}
      ${words.has(`${head.key}.more`) ? html`<p class="more">${words.of(`${head.key}.more`)}</p>` : nothing}
      ${head.key && storm.followed ? html`<p class="more"><a href="/claim/${storm.followed}">${words.of('follow')}</a></p>` : nothing}
    </section>`;
}

export function title(storm, words) {
  return html`<h1>${poem(storm, words)}</h1>`;
}

function poem({ shoppers, stock }, words) {
  return words.of('poster').split('#').map((text, place) => html`${place > 0 ? html`<b>${words.number.format([shoppers, stock][place - 1])}</b>` : nothing}${text}`);
}

/** This service with its verdict, and beside it the naive design with the same crowd. */
export function pair(storm, words, verdict) {
  const score = (of) => html`<dl>${Object.entries(of).map(([key, value]) => html`<div class=${value > 0 && key !== 'sold' ? 'wrong' : ''}><dt>${words.of(`verdict.${key}`)}</dt><dd>${numberOf(value, words)}</dd></div>`)}</dl>`;
  const over = oversold(storm);
  return html`<div class="pair">
    <div><h2 class="whose">${words.of('ours')}</h2>${score(scoreOf(storm))}${verdict}</div>
    ${over === null ? nothing : html`<div class="naive"><h2 class="whose">${words.of('naive')}</h2>${score({ sold: storm.naive_sold, oversold: over })}<p class="aside">${words.of('naive.more')}${storm.stage === 'done' && over === 0 ? html` <b>${words.of(`naive.${luckOf(storm)}`)}</b>` : nothing}</p></div>`}</div>`;
}

/** Why the naive design has oversold nothing. */
function luckOf({ naive_sold: sold, stock, shoppers, met }) {
  return sold < Math.min(stock, shoppers) && met.some(({ trouble }) => trouble === 'empty_redis') ? 'gone' : 'lucky';
}

/** Units that the naive design has sold beyond the stock; null where it could not be tried. */
function oversold({ naive_sold: sold, stock }) {
  return sold === null ? null : Math.max(0, sold - stock);
}

/** Outcomes to be told: these two, and others that there are. */
export function outcomes(storm) {
  return Object.values(OUTCOMES).map(({ name }) => name).filter((name) => ['won', 'sold_out'].includes(name) || storm.counts[name]);
}

/** The four numbers that matter: those of the verdict, and until then what is known: while Redis can't tell, what shoppers were told. Only the verdict knows who has lost. */
function scoreOf({ verdict, stock, left, rows, counts, repeats }) {
  if (verdict) return { sold: verdict.sold, oversold: verdict.oversold, lost: verdict.lost, twice: verdict.twice };
  return { sold: left === null ? counts.won ?? 0 : stock - left, oversold: rows === null ? null : Math.max(0, rows - stock), lost: null, twice: repeats.other };
}

function numberOf(value, words) {
  return value === null ? html`<span aria-label=${words.of('not_known')}>–</span>` : words.number.format(value);
}

function progress(storm, each, words) {
  const number = (value) => numberOf(value, words);
  return html`
    <section class="panel" aria-labelledby="answers" data-stage=${storm.stage}>
      <div class="head">
        <h2 id="answers"><b>${number(storm.answered)}</b> ${words.of('of')} <b>${number(storm.shoppers)}</b> ${words.of('answered')}</h2>
        ${stages(storm, words)}
      </div>
      <div class="squares"><canvas role="img" aria-label=${words.of('squares')}></canvas></div>
      <ul class="legend">
        ${Object.values(OUTCOMES).filter(({ name }) => outcomes(storm).includes(name)).map(({ name, shape: [x, y, wide, high] }) => html`
          <li><svg viewBox="0 0 10 10" aria-hidden="true" class="square-${name}"><rect x=${10 * x} y=${10 * y} width=${10 * wide} height=${10 * high}/></svg>${words.of(`outcome.${name}`)} <b>${number(storm.counts[name] ?? 0)}</b></li>`)}
        ${each > 1 ? html`<li>${words.of('each')} <b>${number(each)}</b></li>` : nothing}
        <li class="beside">${words.of('repeats')} <b>${number(storm.repeats.same + storm.repeats.other)}</b></li>
        <li>${words.of('repeats.same')} <b>${number(storm.repeats.same)}</b></li>
      </ul>
      <dl class="tiles">
        <div><dt>${words.of('left')}</dt><dd>${number(storm.left)}</dd></div>
        ${(storm.stage === 'done' ? ['mean', 'peak'] : ['rate']).map((key) => html`<div><dt>${words.of(key)}</dt><dd>${number(storm[key])}</dd></div>`)}
        <div><dt>${words.of('backlog')}</dt><dd>${number(storm.backlog)}</dd></div>
        <div><dt>${words.of('rows')}</dt><dd>${number(storm.rows)}</dd></div>
      </dl>
    </section>`;
}

function stages(storm, words) {
  const at = STAGES.indexOf(storm.stage);
  const over = storm.stage === 'done';
  const whole = over && storm.verdict !== null;
  const kind = (index) => (over ? (whole ? 'done' : 'next') : index < at ? 'done' : index === at ? 'now' : 'next');
  return html`<ol class="stages">${STAGES.map((stage, index) => html`
    <li class=${kind(index)} aria-current=${kind(index) === 'now' ? 'step' : nothing}>${picture(kind(index))}${words.of(`stage.${stage}`)}<span class="unseen"> ${words.of(`stage.is.${kind(index)}`)}</span></li>`)}</ol>`;
}

export function numbers(verdict, words) {
  const sign = (a, b) => (a === b ? html`<span class="sign">= </span>` : html`<span class="sign wrong">≠ </span>`);
  const count = (value, key, before = nothing, wrong = false) => html`<div class=${wrong ? 'wrong' : ''}><dt>${words.of(key)}</dt><dd>${before}${words.number.format(value)}</dd></div>`;
  const { sold, rows, buyers } = verdict;
  return html`
    <div class="sums">
      <dl>${count(sold, 'verdict.sold')}${count(rows, 'verdict.rows', sign(sold, rows))}${count(buyers, 'verdict.buyers', sign(rows, buyers))}</dl>
      <dl>${FAULTS.filter((fault) => verdict[fault] !== 0).map((fault) => count(verdict[fault], `verdict.${fault}`, nothing, verdict[fault] !== 0))}${verdict.closed ? count(verdict.closed, 'verdict.closed', nothing, true) : nothing}</dl>
    </div>
    <dl class="times">
      <div><dt>${words.of('verdict.looked_up')}</dt><dd>${words.number.format(verdict.looked_up)}</dd></div>
      ${verdict.sold_out_ms === null ? nothing : html`<div><dt>${words.of('verdict.sold_out')}</dt><dd>${words.number.format(verdict.sold_out_ms / 1000)} s</dd></div>`}
      <div><dt>${words.of('verdict.p50')}</dt><dd>${ms(verdict.p50_us / 1000, words)} ms</dd></div>
      <div><dt>${words.of('verdict.p99')}</dt><dd>${ms(verdict.p99_us / 1000, words)} ms</dd></div>
      ${verdict.last_row_ms === null ? nothing : html`<div><dt>${words.of('verdict.last_row')}</dt><dd>≈ ${words.number.format(verdict.last_row_ms)} ms</dd></div>`}
    </dl>`;
}

function ms(value, words) {
  return new Intl.NumberFormat(words.tag, { maximumSignificantDigits: 3 }).format(value);
}

function picture(name) {
  return html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true">${ICONS[name]}</svg>`;
}

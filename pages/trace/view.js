// One claim as templates. Nothing here keeps state or calls the service.

import { html, nothing, svg } from '../vendor/lit-html.js';
import { bar } from '../js/bar.js';

/** Steps in which the claim waits, and those that make it last. The others are neither. */
const WAITS = ['queue', 'log', 'batch'];
const KEEPS = ['script', 'row'];
/** File of the server, which reads the request and writes the reply. */
const SERVER = 'src/http/server/mod.rs';

/** Narrowest bar, in percent: a step of no time is still seen. */
const BAR_MIN = 0.8;
const MARKS = 4;

export function page(state, words, does) {
  const { trace, refused, served, line } = state;
  return html`
    <a class="skip" href="#trace">${words.of('skip')}</a>
    ${bar(`/claim/${state.order}`, served, line, words, does)}
    <main class="desk" id="trace" tabindex="-1">
      ${line === 'lost' && trace ? html`<p class="lost">${words.of('lost')}</p>` : nothing}
      <div class="title"><h1>${words.of('title')}</h1>${trace ? badge(trace, words) : nothing}</div>
      ${trace ? html`
        <div class="pair">${when(trace, state.trip, words)}${what(trace, words)}</div>
        ${why(trace, state.trip, words)}`
    : html`<section class="panel"><p class="none">${words.of(refused === null ? 'loading' : words.has(`refused.${refused}`) ? `refused.${refused}` : 'refused.other')}</p></section>`}
    </main>`;
}

function badge({ row_after: after }, words) {
  if (after === null) return html`<p class="badge" data-tone="warn">${icon('wait')}${words.of('row.waits')}</p>`;
  return html`<p class="badge" data-tone="good">${icon('good')}<span>${words.of('row.after')} <b>${time(after.us, after.approximate, words)}</b></span></p>`;
}

/**
 * The way between browser and service: what the browser has waited for longer than the service took. Only the sum of
 * both ways is known, so the picture has half of it on each side of the service's steps.
 */
function wayOf(steps, trip) {
  if (trip === null) return null;
  const answer = steps.find((step) => step.name === 'answer');
  const served = answer.starts_us + answer.took_us;
  const took = Math.max(0, trip - served);
  return { took, there: [0, took / 2], back: [took / 2 + served, took + served] };
}

function when({ steps, written_at: writtenAt }, trip, words) {
  const known = steps.filter((step) => step.took_us !== null);
  const way = wayOf(steps, trip);
  // The picture begins when the request leaves the browser, if that is known.
  const first = way === null ? 0 : way.there[1];
  const last = Math.max(way === null ? 0 : way.back[1], ...known.map((step) => first + step.starts_us + step.took_us));
  const { end, marks } = scale(last / 1000);
  const spans = (step) => (step.took_us === null ? [] : [[first + step.starts_us, first + step.starts_us + step.took_us]]);
  const isMissing = writtenAt !== null && known.length < steps.length;
  return html`
    <section class="panel when" aria-labelledby="when">
      <div class="head"><h2 id="when">${words.of('when')}</h2><p class="aside">${words.of('clocks')}</p></div>
      <p class="marks" aria-hidden="true"><span></span><svg>${marks.map((mark) => svg`<text x="${(100 * mark) / end}%" y="70%" text-anchor=${mark === 0 ? 'start' : mark === end ? 'end' : 'middle'}>${words.number.format(mark)}</text>`)}</svg><b>ms</b></p>
      <ol class="way">
        ${way === null ? nothing : row({ name: 'way', file: SERVER, took_us: way.took, approximate: true }, [way.there, way.back], end, writtenAt, words)}
        ${steps.map((step) => row(step, spans(step), end, writtenAt, words))}</ol>
      ${isMissing ? html`<p class="aside">${words.of('unknown')}</p>` : nothing}
      <ul class="legend" aria-hidden="true">${['waits', 'keeps', 'jobs'].map((kind) => html`<li><svg viewBox="0 0 10 10"><rect class=${kind} width="10" height="10" rx="2"/></svg>${words.of(`kind.${kind}`)}</li>`)}</ul>
    </section>`;
}

/** A step, with its spans of time in a picture of so many ms. */
function row({ name, file, took_us: took, approximate }, spans, end, writtenAt, words) {
  const unknown = words.of(writtenAt === null ? 'step.next' : 'step.unknown');
  const bar = ([from, to]) => {
    const width = Math.max((to - from) / 10 / end, BAR_MIN);
    return svg`<rect class=${kindOf(name)} x="${Math.min(from / 10 / end, 100 - width)}%" width="${width}%" y="22%" height="56%" rx="3"/>`;
  };
  return html`
    <li data-step=${name}>
      <span class="what"><b>${words.of(`step.${name}`)}</b><code>${file}</code></span>
      <svg class="bar" aria-hidden="true"><line x1="0" x2="100%" y1="50%" y2="50%"/>${spans.map(bar)}</svg>
      ${took === null ? html`<span class="took"><span aria-hidden="true">–</span><span class="unseen">${unknown}</span></span>`
    : html`<span class="took">${time(took, approximate, words)}</span>`}
    </li>`;
}

function what(trace, words) {
  const clock = (text) => (text === null ? null : new Date(text).toISOString());
  const told = (value) => value ?? html`<span aria-label=${words.of('step.unknown')}>–</span>`;
  const counted = (count, key) => (count === null ? null : `${words.number.format(count)} ${words.of(count === 1 ? `${key}.one` : key)}`);
  return html`
    <section class="panel facts" aria-labelledby="what">
      <div class="head"><h2 id="what">${words.of('what')}</h2></div>
      <dl>
        <div><dt>${words.of('fact.order')}</dt><dd>${trace.order_id}</dd></div>
        <div><dt>${words.of('fact.call')}</dt><dd>${counted(trace.call_claims, 'fact.claims')}, ${words.of('fact.round_trip')}</dd></div>
        <div><dt>${words.of('fact.entry')}</dt><dd>${told(trace.entry)}</dd></div>
        <div><dt>${words.of('fact.worker')}</dt><dd>${told(trace.worker)}</dd></div>
        <div><dt>${words.of('fact.batch')}</dt><dd>${told(counted(trace.batch_claims, 'fact.claims'))}</dd></div>
        <div><dt>${words.of('fact.claimed_at')}</dt><dd>${told(clock(trace.claimed_at))}</dd></div>
        <div><dt>${words.of('fact.written_at')}</dt><dd>${told(clock(trace.written_at))}</dd></div>
      </dl>
    </section>`;
}

/** What a crash in each step means. */
function why({ steps }, trip, words) {
  const names = [...(trip === null ? [] : ['way']), ...steps.map((step) => step.name)];
  return html`
    <section class="panel why" aria-labelledby="why">
      <div class="head"><h2 id="why">${words.of('why')}</h2><p class="aside">${words.of('why.more')}</p></div>
      <dl>${names.map((name) => html`<div><dt>${words.of(`step.${name}`)}</dt><dd>${words.of(`crash.${name}`)}</dd></div>`)}</dl>
    </section>`;
}

function kindOf(name) {
  return WAITS.includes(name) ? 'waits' : KEEPS.includes(name) ? 'keeps' : 'jobs';
}

/** A duration in ms with three digits; a sign before one that lies between two clocks. */
function time(us, approximate, words) {
  const digits = us < 1000 ? { minimumFractionDigits: 2, maximumFractionDigits: 2 } : { minimumSignificantDigits: 3, maximumSignificantDigits: 3 };
  const number = new Intl.NumberFormat(words.tag, digits).format(us / 1000);
  return html`${approximate ? html`<span class="sign"><span aria-hidden="true">≈ </span><span class="unseen">${words.of('about')} </span></span>` : nothing}${number} <span class="unit">ms</span>`;
}

/** Marks of a scale that ends at or above so many ms: at most four steps of 1, 2 or 5 times a power of ten. */
function scale(ms) {
  const rough = Math.max(ms, 0.1) / MARKS;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * power).find((it) => it >= rough);
  const count = Math.max(1, Math.ceil(ms / step));
  return { end: count * step, marks: Array.from({ length: count + 1 }, (_, number) => number * step) };
}

function icon(name) {
  const path = name === 'good' ? svg`<path d="m4.5 12.5 5 5 10-11"/>` : svg`<path d="M12 3.5a8.5 8.5 0 1 0 .01 0M12 7.5V12l3 2.5"/>`;
  return html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true">${path}</svg>`;
}

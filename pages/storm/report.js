// A report on a storm: one HTML file that stands alone, to be kept or sent.

import { html, nothing, render } from '../vendor/lit-html.js';
import { curve } from './curve.js';
import { headOf } from './verdict.js';
import { numbers, outcomes, pair, title } from './view.js';

const STYLE = `:root { color-scheme: light dark; --ink: light-dark(#17191e, #eef0f4); --quiet: light-dark(#595e69, #a3a9b6); --edge: light-dark(#e2e0d9, #32353e); --good: light-dark(#00694c, #45cfa3); --bad: light-dark(#a63a00, #f5976a); --main: light-dark(#0066a1, #5cb8f2); --warn: light-dark(#7d4a00, #f2d08c); font: 16px/1.5 system-ui, "Noto Sans", "PingFang SC", "Microsoft YaHei", "Noto Sans CJK SC", sans-serif; }
* { margin: 0; box-sizing: border-box; }
body { background: light-dark(#f6f5f1, #101114); color: var(--ink); }
main { max-width: 60rem; margin: 0 auto; padding: 2rem 1.2rem 3rem; display: grid; gap: 1.4rem; }
section { background: light-dark(#fff, #1a1c22); border: 1px solid var(--edge); border-radius: .9rem; padding: 1.2rem 1.4rem; min-width: 0; }
h1 { font-size: clamp(1.5rem, 5vw, 2.4rem); line-height: 1.2; }
h2 { font-size: 1.05rem; margin-bottom: .5rem; }
p, dt, li, text { color: var(--quiet); fill: var(--quiet); font-size: .95rem; }
dd { margin: 0; font-weight: 700; font-variant-numeric: tabular-nums; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: 1rem 2rem; margin-top: 1rem; }
.pair dl, .sums dl, .counts { display: flex; flex-wrap: wrap; gap: .3rem 1.8rem; }
.pair dl > div, .sums dl > div, .counts > div { display: flex; flex-direction: column-reverse; justify-content: flex-end; }
.pair dd { font-size: clamp(1.8rem, 6vw, 3rem); line-height: 1.1; }
.sums dd, .counts dd { font-size: 1.4rem; }
.sums { display: flex; flex-wrap: wrap; justify-content: space-between; gap: .5rem 2rem; }
.times { margin-top: 1rem; }
.times div { display: flex; justify-content: space-between; gap: 1rem; }
.naive { border-left: 3px solid var(--edge); padding-left: 1rem; }
.wrong dd, .sign.wrong, [data-tone="bad"] { color: var(--bad); }
[data-tone="good"] { color: var(--good); }
[data-tone="warn"] { color: var(--warn); }
.verdict { font-size: 1.3rem; font-weight: 700; margin-top: 1rem; }
.legend { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; }
.legend svg { width: 1.6rem; height: .6rem; }
.chart { display: block; width: 100%; height: auto; }
.chart text { font-size: 11px; }
path { fill: none; stroke-width: 2; }
.grid { stroke: var(--edge); stroke-width: 1; }
.line-won { stroke: var(--good); }
.line-rows { stroke: var(--main); stroke-dasharray: 5 3; }
.line-naive { stroke: var(--bad); stroke-dasharray: 7 3 1.5 3; }
.line-stock { stroke: var(--quiet); stroke-width: 1; stroke-dasharray: 2 3; }
path.mark { stroke: var(--warn); stroke-width: 1.5; }
.aside { margin-top: .4rem; }
.unseen, .icon { display: none; }`;

/** Hands a report to the browser as a file. */
export function download({ storm, points }, words) {
  const began = words.date(Number(storm.id), Date.now());
  const main = document.createElement('main');
  render(report(storm, points, began, words), main);
  const body = main.outerHTML.replace(/<!--.*?-->/gs, '');
  const policy = `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">`;
  const head = `<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">${policy}<title>${words.of('report.title')} · ${began}</title><style>${STYLE}</style>`;
  const file = new Blob([`<!doctype html>\n<html lang="${words.tag}"><head>${head}</head><body>${body}</body></html>\n`], { type: 'text/html' });
  const link = Object.assign(document.createElement('a'), { href: URL.createObjectURL(file), download: `flash-sale-storm-${storm.id}.html` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

function report(storm, points, began, words) {
  const head = headOf(storm);
  const rate = (key) => html`<div><dt>${words.of(key)}</dt><dd>${words.number.format(storm[key])}</dd></div>`;
  return html`
    <section>
      <p>${words.of('report.title')} · ${began}</p>
      ${title(storm, words)}
      ${pair(storm, words, html`<p class="verdict" data-tone=${head.tone}>${words.of(head.key)}</p>`)}
      ${words.has(`${head.key}.more`) ? html`<p>${words.of(`${head.key}.more`)}</p>` : nothing}
    </section>
    <section><h2>${words.of('curve')}</h2>${curve(storm, points, words)}</section>
    <section><h2>${words.of('crowd')}</h2><dl class="counts">${outcomes(storm).map((name) => html`<div><dt>${words.of(`outcome.${name}`)}</dt><dd>${words.number.format(storm.counts[name] ?? 0)}</dd></div>`)}${rate('mean')}${rate('peak')}</dl></section>
    ${storm.verdict ? html`<section><h2>${words.of('proof')}</h2>${numbers(storm.verdict, words)}</section>` : nothing}
    <p>${words.of('report.how')}</p>`;
}

// The curve of a storm: units sold and orders written over its seconds, beside the naive design, with the trouble that was made.

import { html, nothing, svg } from '../vendor/lit-html.js';
import { ceiling, path } from '../board/charts.js';

const LINES = ['won', 'rows', 'naive'];
const [WIDTH, HEIGHT, LEFT, TOP, BOTTOM] = [640, 150, 46, 14, 22];

/** A point of the curve. */
export const pointOf = ({ elapsed_ms, counts, rows, naive_sold }) => ({ t_ms: elapsed_ms, won: counts.won ?? 0, rows, naive: naive_sold });

/** The curve of a storm; nothing of one that this tab has not seen. */
export function curve({ stock, met, naive_sold: naive }, points, words) {
  if (points.length < 2) return html`<p class="none">${words.of('curve.none')}</p>${troubles(met, words)}`;
  const shown = naive === null ? LINES.slice(0, 2) : LINES;
  const end = Math.max(1000, points.at(-1).t_ms);
  const top = ceiling(Math.max(4, stock, ...points.flatMap((point) => shown.map((key) => point[key] ?? 0))));
  const x = (ms) => LEFT + (ms / end) * (WIDTH - LEFT - 1);
  const y = (number) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - number / top);
  return html`
    <ul class="legend">${shown.map((key) => html`
      <li><svg viewBox="0 0 24 8" aria-hidden="true"><path class="line-${key}" d="M0 4H24"/></svg>${words.of(`curve.${key}`)} <b>${words.number.format(points.at(-1)[key] ?? 0)}</b></li>`)}
      <li><svg viewBox="0 0 24 8" aria-hidden="true"><path class="line-stock" d="M0 4H24"/></svg>${words.of('curve.stock')} <b>${words.number.format(stock)}</b></li></ul>
    <svg class="chart" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label=${words.of('curve')}>
      ${[0, top / 2, top].map((number) => svg`
        <path class="grid" d="M${LEFT} ${y(number).toFixed(1)}H${WIDTH}"/>
        <text x=${LEFT - 8} y=${(y(number) + 4).toFixed(1)} text-anchor="end">${words.number.format(number)}</text>`)}
      ${[0.25, 0.5, 0.75].map((part) => svg`<text x=${x(part * end).toFixed(1)} y=${HEIGHT - 4} text-anchor="middle">${second(part * end, words)}</text>`)}
      <path class="line-stock" d="M${LEFT} ${y(stock).toFixed(1)}H${WIDTH}"/>
      ${met.map(({ at_ms: at }, place) => svg`
        <path class="mark" d="M${x(Math.min(at, end)).toFixed(1)} ${TOP}V${HEIGHT - BOTTOM}"/>
        <text class="mark" x=${x(Math.min(at, end)).toFixed(1)} y=${TOP - 3} text-anchor="middle">${place + 1}</text>`)}
      ${shown.map((key) => svg`<path class="line-${key}" d=${path(points, (point) => point[key], x, y)}/>`)}
    </svg>
    ${troubles(met, words)}`;
}

/** The trouble that a storm has met, by the numbers of its marks. */
export function troubles(met, words) {
  return met.length === 0 ? nothing : html`<ol class="met">${met.map(({ trouble, at_ms: at }) => html`<li>${second(at, words)}: ${words.of(`met.${trouble}`)}</li>`)}</ol>`;
}

function second(ms, words) {
  return `${words.number.format(Math.round(ms / 100) / 10)} s`;
}

// Charts of the last minutes, five at most, as SVG: a path for each line. A line has a colour and a dash of its own, so no reader
// depends on colours; a gap is a time without a count.

import { html, svg } from '../vendor/lit-html.js';

/** Seconds that a chart may show: the fewest that hold all points, so that a young curve has a shape. */
const SPANS = [60, 120, 300];
/** Labels of the time, as parts of the span before now. */
const LABELS = { desk: [0.8, 0.6, 0.4, 0.2], phone: [0.8, 0.4] };
/** Width and height in units of the text: those of the place, more or less. */
const SIZES = { desk: [640, 130], phone: [340, 120] };
/** Room for the figures beside and below. */
const LEFT = 46;
const BOTTOM = 22;
/** Time without a point that is a gap. */
const GAP_MS = 3000;

/**
 * `lines` are `{key, name, of}`: `of` returns the number of a point, or null. `now` is the end of the time shown. Lines of
 * zeros are a sentence.
 */
export function chart(key, lines, points, now, words) {
  const age = points.length === 0 ? 0 : now - points[0].t_ms;
  const span = 1000 * (SPANS.find((seconds) => age <= 1000 * seconds) ?? SPANS.at(-1));
  const shown = points.filter((point) => point.t_ms > now - span);
  if (shown.every((point) => lines.every((line) => !line.of(point)))) return html`<p class="none">${words.say(`${key}.none`, { ms: Math.max(1000, Math.min(age, span)) })}</p>`;
  const size = window.innerWidth < 720 ? 'phone' : 'desk';
  const [width, height] = SIZES[size];
  const top = ceiling(Math.max(4, ...shown.flatMap((point) => lines.map((line) => line.of(point) ?? 0))));
  const x = (ms) => LEFT + ((ms - now) / span + 1) * (width - LEFT);
  const y = (number) => (height - BOTTOM) * (1 - number / top) + 6;
  const last = shown.at(-1);
  return html`
    <ul class="legend">${lines.map((line) => html`
      <li><svg viewBox="0 0 24 8" aria-hidden="true"><path class="line-${line.key}" d="M0 4H24"/></svg>${line.name} <b>${last ? words.count(line.of(last)) : '–'}</b></li>`)}</ul>
    <svg class="chart" viewBox="0 0 ${width} ${height + 6}" role="img" aria-label=${words.of(key)}>
      ${[0, 2, 4].map((step) => svg`
        <path class="grid" d="M${LEFT} ${y((top * step) / 4).toFixed(1)}H${width}"/>
        <text x=${LEFT - 8} y=${(y((top * step) / 4) + 4).toFixed(1)} text-anchor="end">${words.short((top * step) / 4)}</text>`)}
      ${LABELS[size].map((part) => now - part * span).map((ms) => svg`
        <text x=${x(ms).toFixed(1)} y=${height + 2} text-anchor="middle">${words.time(ms)}</text>`)}
      ${lines.map((line) => svg`<path class="line-${line.key}" d=${path(shown, line.of, x, y)}/>`)}
    </svg>`;
}

/** The path of a line. */
export function path(points, of, x, y) {
  let text = '';
  let before = -Infinity;
  for (const point of points) {
    const number = of(point);
    if (number === null) continue;
    text += `${point.t_ms - before > GAP_MS ? 'M' : 'L'}${x(point.t_ms).toFixed(1)} ${y(number).toFixed(1)}`;
    before = point.t_ms;
  }
  return text;
}

/** The next round number whose quarters are round, too. */
export function ceiling(number) {
  const power = 10 ** Math.floor(Math.log10(number));
  return [1, 2, 4, 6, 8, 10].map((step) => step * power).find((round) => round >= number);
}

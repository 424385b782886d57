// Charts of the last minutes, five at most, as SVG: a path for each line. A line has a colour and a dash of its own, so no reader
// depends on colours; a gap is a time without a count.

import { html, nothing, svg } from '../vendor/lit-html.js';

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
 * zeros are a sentence. `marks` are `{t_ms, tone, text}`. `looked` is the time under the pointer, or null; `look` is told it.
 */
export function chart(key, lines, points, { now, marks, looked, look }, words) {
  const age = points.length === 0 ? 0 : now - points[0].t_ms;
  const span = 1000 * (SPANS.find((seconds) => age <= 1000 * seconds) ?? SPANS.at(-1));
  const shown = points.filter((point) => point.t_ms > now - span);
  if (shown.every((point) => lines.every((line) => !line.of(point)))) return html`<p class="none">${words.say(`${key}.none`, { ms: Math.max(1000, Math.min(age, span)) })}</p>`;
  const size = window.innerWidth < 720 ? 'phone' : 'desk';
  const [width, height] = SIZES[size];
  const top = ceiling(Math.max(4, ...shown.flatMap((point) => lines.map((line) => line.of(point) ?? 0))));
  const x = (ms) => LEFT + ((ms - now) / span + 1) * (width - LEFT);
  const y = (number) => (height - BOTTOM) * (1 - number / top) + 6;
  const marked = marks.filter(({ t_ms: at }) => at > now - span && at <= now);
  const near = (all) => all.reduce((best, one) => (best && Math.abs(best.t_ms - looked) <= Math.abs(one.t_ms - looked) ? best : one), null);
  const told = looked === null ? shown.at(-1) : near(shown);
  const mark = looked === null ? marked[0] : near(marked.filter(({ t_ms: at }) => Math.abs(at - looked) < span / 40));
  const timeAt = ({ currentTarget, clientX }) => {
    const { left, width: wide } = currentTarget.getBoundingClientRect();
    return now + ((((clientX - left) / wide) * width - LEFT) / (width - LEFT) - 1) * span;
  };
  return html`
    <ul class="legend">${looked === null || !told ? nothing : html`<li class="when">${words.time(told.t_ms)}</li>`}${lines.map((line) => html`
      <li><svg viewBox="0 0 24 8" aria-hidden="true"><path class="line-${line.key}" d="M0 4H24"/></svg>${line.name} <b>${told ? words.count(line.of(told)) : '–'}</b></li>`)}</ul>
    <svg class="chart" viewBox="0 0 ${width} ${height + 6}" role="img" aria-label=${words.of(key)} @pointermove=${(event) => look(timeAt(event))} @pointerleave=${() => look(null)}>
      ${[0, 2, 4].map((step) => svg`
        <path class="grid" d="M${LEFT} ${y((top * step) / 4).toFixed(1)}H${width}"/>
        <text x=${LEFT - 8} y=${(y((top * step) / 4) + 4).toFixed(1)} text-anchor="end">${words.short((top * step) / 4)}</text>`)}
      ${LABELS[size].map((part) => now - part * span).map((ms) => svg`
        <text x=${x(ms).toFixed(1)} y=${height + 2} text-anchor="middle">${words.time(ms)}</text>`)}
      ${marked.map(({ t_ms: at, tone }) => svg`<path class="mark" data-tone=${tone} d="M${x(at).toFixed(1)} 6V${y(0).toFixed(1)}m-4 ${(6 - y(0)).toFixed(1)}h8l-4 7z"/>`)}
      ${looked === null || !told ? nothing : svg`<path class="grid" d="M${x(told.t_ms).toFixed(1)} 6V${y(0).toFixed(1)}"/>`}
      ${lines.map((line) => svg`<path class="line-${line.key}" d=${path(shown, line.of, x, y)}/>`)}
    </svg>
    ${marked.length === 0 ? nothing : html`<p class="marked aside">${mark ? html`<span class="how" data-tone=${mark.tone}>${words.time(mark.t_ms)}</span> <span>${mark.text}</span>` : words.say('marks', { number: marked.length })}</p>`}`;
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

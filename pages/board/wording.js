// Words of the board: sentences with numbers in them, spans of time, figures.

import desk from '../js/desk.js';
import { Words } from '../js/words.js';
import texts from './texts.js';

export class BoardWords extends Words {
  constructor() {
    super(texts, desk);
  }

  /** The sentence under a key, with `{n}`, `{t}` and `{x}` filled in; English has a form for one thing. */
  say(key, { number, ms, text } = {}) {
    const one = number === 1 && this.has(`${key}.one`) ? `${key}.one` : key;
    return this.of(one).replace('{n}', () => this.count(number ?? null)).replace('{t}', () => this.span(ms ?? 0)).replace('{x}', () => text ?? '');
  }

  /** A count, or a rate without its fraction; a dash for one that isn't known. */
  count(number) {
    if (number === null || number === undefined) return '–';
    return this.number.format(number > 0 && number < 1 ? Math.ceil(number) : Math.round(number));
  }

  /** A count for an axis. */
  short(number) {
    return new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 }).format(number).replace('K', 'k');
  }

  /** A time of the day. */
  time(ms) {
    return new Date(ms).toLocaleTimeString('en-GB');
  }

  /** A span in its largest unit: 7.4 ms, 61 s, 7 min. */
  span(ms) {
    const unit = (number, key) => `${this.number.format(number)} ${this.of(`unit.${key}`)}`;
    if (ms < 10) return unit(Math.round(ms * 10) / 10, 'ms');
    if (ms < 1000) return unit(Math.round(ms), 'ms');
    if (ms < 120_000) return unit(ms < 10_000 ? Math.round(ms / 100) / 10 : Math.round(ms / 1000), 's');
    if (ms < 7_200_000) return unit(Math.round(ms / 60_000), 'min');
    if (ms < 172_800_000) return unit(Math.round(ms / 3_600_000), 'h');
    return unit(Math.round(ms / 86_400_000), 'd');
  }

  /** A time since then, as a clock shows it. */
  up(ms) {
    const seconds = Math.max(0, Math.floor(ms / 1000));
    const two = (number) => String(number).padStart(2, '0');
    return `${two(Math.floor(seconds / 3600))}:${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`;
  }

  /** Decimals of a currency. */
  decimals(currency) {
    return new Intl.NumberFormat('en', { style: 'currency', currency }).resolvedOptions().maximumFractionDigits;
  }
}

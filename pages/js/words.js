// Words, numbers and dates in the two languages.

import { ofDevice } from './store.js';

const KEPT = 'flash-sale.language';

export class Words {
  /** Both languages under each key: English, Chinese. */
  #texts;
  #column;

  /** The words of a page, and those that it shares with others. */
  constructor(texts, shared) {
    this.#texts = { ...shared, ...texts };
    const kept = ofDevice.get(KEPT);
    const wanted = kept ?? (navigator.languages ?? []).find((tag) => /^(en|zh)\b/i.test(tag)) ?? 'en';
    this.set(/^zh/i.test(wanted) ? 'zh' : 'en');
  }

  set(language) {
    this.language = language;
    this.#column = language === 'zh' ? 1 : 0;
    this.tag = language === 'zh' ? 'zh-CN' : 'en';
    document.documentElement.lang = this.tag;
    this.number = new Intl.NumberFormat(this.tag);
  }

  /** Changes to the other language, and keeps that for the next visit. */
  turn() {
    this.set(this.language === 'zh' ? 'en' : 'zh');
    ofDevice.set(KEPT, this.language);
  }

  /** The text under this key; a key that is missing shows itself. */
  of(key) {
    return this.#texts[key]?.[this.#column] ?? key;
  }

  has(key) {
    return this.#texts[key]?.[this.#column] !== undefined;
  }

  /** An amount in minor units of its currency: a cent is a hundredth of a dollar, and a yen has no smaller unit. */
  price(minor, currency) {
    if (minor === 0) return this.of('free');
    const price = new Intl.NumberFormat(this.tag, { style: 'currency', currency, currencyDisplay: 'symbol' });
    return price.format(minor / 10 ** price.resolvedOptions().maximumFractionDigits);
  }

  /** A date with its zone, and with its year if that isn't the present one. */
  date(ms, nowMs) {
    const year = new Date(ms).getFullYear() === new Date(nowMs).getFullYear() ? undefined : 'numeric';
    const clock = { hour: '2-digit', minute: '2-digit', hourCycle: 'h23', timeZoneName: 'short' };
    return new Intl.DateTimeFormat(this.tag, { year, month: 'short', day: 'numeric', ...clock }).format(ms);
  }

  /** An id in groups of four digits, to be read aloud. */
  id(id) {
    return id.replace(/(\d{4})(?=\d)/g, '$1 ');
  }

  /** A span of time as a clock shows it, rounded up: it reads 00:00 only when it is over. */
  span(ms) {
    const seconds = Math.max(0, Math.ceil(ms / 1000));
    const two = (number) => String(number).padStart(2, '0');
    const [days, hours] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24];
    const clock = `${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`;
    if (days > 0) return this.language === 'zh' ? `${days}天 ${two(hours)}:${clock}` : `${days} d ${two(hours)}:${clock}`;
    return hours > 0 ? `${two(hours)}:${clock}` : clock;
  }
}

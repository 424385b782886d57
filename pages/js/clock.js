// The server's clock, as seen from here.
//
// A message can only be late, so of the differences "its time - our time" the largest one is nearest to the truth, and
// never beyond it: a sale never opens here before it opens there.

const SAMPLES = 30;

export class Clock {
  #offsets = [];
  /** Before the first message. */
  #guess = Date.now() - performance.now();

  /** Notes that a message with this time of the server has come now. */
  heard(serverMs) {
    this.#offsets.push(serverMs - performance.now());
    if (this.#offsets.length > SAMPLES) this.#offsets.shift();
  }

  /** Notes the date of a reply: until the first message it is nearer to the truth than the clock of this device. */
  guess(serverMs) {
    this.#guess = serverMs - performance.now();
  }

  /** Goes on over a sleep of this device; the next message counts alone. */
  slept(ms) {
    this.guess(this.now() + ms);
    this.#offsets = [];
  }

  /** The server's time in ms since 1970. */
  now() {
    return performance.now() + (this.#offsets.length === 0 ? this.#guess : Math.max(...this.#offsets));
  }
}

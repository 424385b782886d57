// The server's clock, as seen from here.
//
// A message can only be late, so of the differences "its time - our time" the largest one is nearest to the truth, and
// never beyond it: a sale never opens here before it opens there.

const SAMPLES = 30;

export class Clock {
  #offsets = [];

  /** Notes that a message with this time of the server has come now. */
  heard(serverMs) {
    this.#offsets.push(serverMs - performance.now());
    if (this.#offsets.length > SAMPLES) this.#offsets.shift();
  }

  /** The server's time in ms since 1970; before the first message our own. */
  now() {
    if (this.#offsets.length === 0) return Date.now();
    return performance.now() + Math.max(...this.#offsets);
  }
}

// Live states: server-sent events over fetch, which tells a refusal and leaves the pauses to us.
//
// Each event is the whole state, so nothing is replayed after a break. A hidden page has no stream: a browser has six
// connections to a host, also for several visible windows. Where there is no room for a further watcher, the state is asked
// for every 10 to 20 s. A device that has slept has lost its stream, though no timer has noticed.

/** An event comes at least every 5 s. */
const SILENCE_MS = 12_000;
const PAUSE_MIN_MS = 500;
const PAUSE_MAX_MS = 10_000;
/** A browser may not notice for minutes that the network has gone. */
const POLL_MS = 10_000;
/** Streams of all visible pages of a browser together: its other connections are for requests. */
const STREAMS_MAX = 4;
/** Period of the looks whether this device has slept, and the shortest sleep that counts. */
const LOOK_MS = 1000;
const SLEEP_MS = 5000;
/** Messages that the time of the server is taken from. */
const SAMPLES = 30;

export class Stream {
  #of;
  #tell;
  #stop = new AbortController();
  #last = 0;
  #sleep;
  /** Whether somebody waits for news who looks at another tab. */
  staysWhileHidden = false;

  /**
   * The events of one name under a path. `final` are codes of refusals after which there is no further try, `ask` asks for
   * the state where there is no room, and `headers` makes the headers of each request.
   * `tell` gets `{dateMs}` of each reply, `{event, line: 'live'}`, `{line: 'lost'}`, with `sleptMs` after a sleep, `{line: 'connecting'}` once a page is shown again, and
   * `{refused: code}`, as they come; and each of these that `ask` returns.
   */
  constructor({ path, event, final, ask, headers = () => ({}) }, tell) {
    this.#of = { path, event, final, ask, headers };
    this.#tell = tell;
    document.addEventListener('visibilitychange', () => this.#isHidden() && this.#stop.abort());
    window.addEventListener('offline', () => this.#stop.abort());
    this.#sleep = afterSleep((sleptMs) => {
      this.#tell({ line: 'lost', sleptMs });
      this.#stop.abort();
    });
    this.#run();
  }

  #isHidden() {
    return document.hidden && !this.staysWhileHidden;
  }

  async #run() {
    let pause = PAUSE_MIN_MS;
    for (;;) {
      if (this.#isHidden()) {
        while (this.#isHidden()) await new Promise((shown) => document.addEventListener('visibilitychange', shown, { once: true }));
        this.#tell({ line: 'connecting' });
      }
      this.#stop = new AbortController();
      const began = performance.now();
      const code = await this.#watchInPlace(0);
      if (this.#of.final.includes(code)) {
        this.#tell({ refused: code });
        return clearInterval(this.#sleep);
      }
      if (this.#isHidden()) continue;
      if (code === 'too_many_watchers') {
        const told = await this.#of.ask();
        this.#tell(told);
        if (told.refused) return clearInterval(this.#sleep);
        await sleep(POLL_MS * (1 + Math.random()));
        continue;
      }
      this.#tell({ line: 'lost' });
      // A stream that has worked for a while is tried again at once; all its watchers lost it at one moment.
      pause = performance.now() - began > SILENCE_MS ? PAUSE_MIN_MS : Math.min(2 * pause, PAUSE_MAX_MS);
      await sleep(pause * (0.5 + Math.random()));
    }
  }

  /** Watches as the holder of a place of this browser, if one is free. Only pages with TLS, or of this machine, have locks. */
  async #watchInPlace(place) {
    if (!navigator.locks) return this.#watch();
    if (place === STREAMS_MAX) return 'too_many_watchers';
    return navigator.locks.request(`flash-sale.stream.${place}`, { ifAvailable: true }, (lock) => (lock ? this.#watch() : this.#watchInPlace(place + 1)));
  }

  /** Reads events until the stream ends. Returns the code of a refusal. */
  async #watch() {
    const stop = this.#stop;
    let watchdog = setTimeout(() => stop.abort(), SILENCE_MS);
    try {
      const reply = await fetch(this.#of.path, { signal: stop.signal, cache: 'no-store', headers: this.#of.headers() });
      if (!reply.ok) return (await reply.json()).code;
      this.#tell({ dateMs: Date.parse(reply.headers.get('date')) });
      const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = '';
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return null;
        clearTimeout(watchdog);
        watchdog = setTimeout(() => stop.abort(), SILENCE_MS);
        const events = (text + value).split('\n\n');
        text = events.pop();
        events.forEach((event) => this.#read(event));
      }
    } catch {
      return null;
    } finally {
      clearTimeout(watchdog);
      stop.abort();
    }
  }

  #read(text) {
    const fields = Object.fromEntries(text.split('\n').map((line) => line.split(/: ?(.*)/s)));
    if (fields.event !== this.#of.event) return;
    const event = JSON.parse(fields.data);
    const now = event?.now ?? null;
    // After a change of process an event may be a little older than the last one; a larger step is one of Redis's clock.
    if (now !== null && now < this.#last && this.#last - now < SILENCE_MS) return;
    this.#last = now ?? this.#last;
    this.#tell({ line: 'live', event });
  }
}

/**
 * Tells how long this device has slept, once it is awake, until the interval that it returns is cleared. In its sleep timers and `performance.now()` stand still on most
 * systems, and the clock of the device goes on. A clock that is set forward looks the same.
 */
function afterSleep(tell) {
  const lead = () => Date.now() - performance.now();
  let before = lead();
  return setInterval(() => {
    const sleptMs = lead() - before;
    before += sleptMs;
    if (sleptMs > SLEEP_MS) tell(sleptMs);
  }, LOOK_MS);
}

function sleep(ms) {
  return new Promise((over) => setTimeout(over, ms));
}

/**
 * The server's clock, as seen from here. A message can only be late, so of the differences "its time - our time" the largest
 * one is nearest to the truth, and never beyond it: a sale never opens here before it opens there.
 */
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

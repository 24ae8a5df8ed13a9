// The connection to the scheduler: one stream of events, reopened whenever it ends.
//
// After each connection the scheduler sends the full state, so nothing has to be kept across a restart. A stream
// without a message for SILENCE is treated as broken: the scheduler sends at least every five seconds.

const SILENCE = 12_000; // ms
const PAUSE = 2_000; // ms before a retry
const HIDDEN = 60_000; // ms after which a hidden page disconnects: browsers allow few streams per host

export class Connection {
  /** `onMessage(kind, message)` gets "full" and "change"; `onState(state)` gets "connecting", "live" and "lost". */
  constructor(address, onMessage, onState) {
    Object.assign(this, { address, onMessage, onState, source: null, state: "", lastMessage: performance.now() });
    document.addEventListener("visibilitychange", () => this.seen(!document.hidden));
    setInterval(() => this.watch(), 1000);
    this.open();
  }

  open() {
    this.close();
    this.lastMessage = performance.now();
    const source = (this.source = new EventSource(this.address));
    for (const kind of ["full", "change"]) {
      source.addEventListener(kind, (event) => {
        this.lastMessage = performance.now();
        this.onMessage(kind, JSON.parse(event.data));
        this.move("live");
      });
    }
    source.addEventListener("error", () => {
      this.move("lost");
      if (source.readyState === EventSource.CLOSED && this.source === source) this.again();
    });
    if (this.state === "") this.move("connecting");
  }

  close() {
    clearTimeout(this.retry);
    this.source?.close();
    this.source = null;
  }

  again() {
    this.close();
    this.retry = setTimeout(() => this.open(), PAUSE);
  }

  watch() {
    if (this.source && performance.now() - this.lastMessage > SILENCE) {
      this.move("lost");
      this.open();
    }
  }

  seen(visible) {
    clearTimeout(this.hiding);
    if (!visible) this.hiding = setTimeout(() => this.close(), HIDDEN);
    else if (!this.source) this.open();
  }

  move(state) {
    if (state === this.state) return;
    this.state = state;
    this.onState(state);
  }
}

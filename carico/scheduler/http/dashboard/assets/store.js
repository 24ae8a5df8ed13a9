// What the scheduler has sent so far: plain data, no elements.

export const FRESH = 1, REPORTED = 2, CHURN = 4, CORDONED = 8;
const STEPS = 220; // points kept of the cluster's trend

/** "node-10" after "node-9": numbers are padded once, so that sorting is plain comparison. */
const sortKey = (name) => name.replace(/\d+/g, (digits) => digits.padStart(10, "0"));

export class Store {
  constructor() {
    this.nodes = new Map(); // row number to node
    this.dimensions = [];
    this.summary = null;
    this.who = null;
    this.queue = null;
    this.classes = null;
    this.decisions = [];
    this.past = []; // [time, pods, reserved, free, waiting]
    this.membership = 0; // grows when nodes are added or removed
    this.offset = 0; // s from the page's clock to the scheduler's monotonic one
    this.onNode = () => {};
  }

  /** Seconds on the scheduler's monotonic clock. */
  now() {
    return performance.now() / 1000 + this.offset;
  }

  apply(kind, message) {
    this.offset = message.now - performance.now() / 1000;
    if (kind === "full") {
      this.nodes.clear();
      this.membership += 1;
      this.past = message.past;
      this.decisions = [];
    }
    for (const part of ["who", "summary", "dimensions", "queue", "classes"]) if (message[part]) this[part] = message[part];
    for (const row of message.gone ?? []) if (this.nodes.delete(row)) this.membership += 1;
    for (const figures of message.nodes ?? []) this.put(figures);
    if (message.decisions) this.decisions = [...message.decisions, ...this.decisions].slice(0, 50);
    if (message.summary && kind === "change") this.trend(message.now, message.summary);
  }

  put([row, name, state, capacity, reserved, pods, starting, ...usage]) {
    let node = this.nodes.get(row);
    if (!node || node.name !== name) {
      node = { row, name, key: sortKey(name), lower: name.toLowerCase(), version: 0 };
      this.nodes.set(row, node);
      this.membership += 1;
    }
    const known = (state & REPORTED) > 0;
    Object.assign(node, { state, capacity: known ? capacity : null, reserved, pods, starting, usage, free: known ? capacity - reserved : null });
    Object.assign(node, room(node));
    node.version += 1;
    this.onNode(node);
  }

  trend(now, { pods, reserved, free, waiting }) {
    const last = this.past.at(-1);
    const point = [now, pods, reserved, free, waiting];
    if (last && now - last[0] < 3) {
      if (this.past.length > 1 && now - this.past.at(-2)[0] < 3) this.past.pop(); // the newest point is replaced
    }
    this.past.push(point);
    if (this.past.length > STEPS) this.past.shift();
  }
}

/** What fills a node: pods that its report counts, pods that are reserved, and the rest. */
function room({ pods, reserved, capacity }) {
  const counted = Math.max(0, pods - reserved);
  const all = Math.max(counted + Math.max(capacity ?? 0, reserved), 1);
  return { counted, countedShare: counted / all, heldShare: Math.min(1, (counted + reserved) / all) };
}

export const isStale = (node) => !(node.state & FRESH);

/** A one-word state of a node's figures, and the class that colours it. */
export function modeOf(node) {
  if (!(node.state & REPORTED)) return ["no report", "bad"];
  if (isStale(node)) return ["stale", "bad"];
  if (node.state & CORDONED) return ["cordoned", "held"];
  return node.state & CHURN ? ["churn", "held"] : ["settled", "plain"];
}

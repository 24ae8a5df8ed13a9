// Connects the parts: messages of the stream go into the store, and the parts draw them in the next frames.

import { Classes } from "./classes.js";
import { $, announce, duration, setText } from "./dom.js";
import { Detail } from "./detail.js";
import { Nodes } from "./nodes.js";
import { Store } from "./store.js";
import { Connection } from "./stream.js";
import { Summary } from "./summary.js";
import { Waiting } from "./waiting.js";

const store = new Store();
const openNamed = (name) => {
  const node = [...store.nodes.values()].find((one) => one.name === name);
  if (node) detail.open(node);
  else announce(`${name} is not in the cluster any more`);
};
const nodes = new Nodes(store, (node) => detail.open(node));
const detail = new Detail(store, (node, step) => nodes.beside(node, step));
const summary = new Summary(store);
const waiting = new Waiting(store, openNamed);
const classes = new Classes(store);

// One part per frame: with 5,000 nodes, drawing all parts at once would delay a frame.
const parts = [() => nodes.update(), () => summary.update(), () => waiting.update(), () => classes.update(), who];
let due = [];
function drawSoon() {
  if (!due.length) requestAnimationFrame(drawNext);
  due = [...parts];
}
function drawNext() {
  due.shift()();
  if (due.length) requestAnimationFrame(drawNext);
}

let role = "";
function who() {
  const { identity, leads, holder, ready, version } = store.who;
  setText($("identity"), `${identity} · ${version}`);
  const now = !ready ? "starting" : leads ? "leads" : "stands by";
  $("role").dataset.kind = leads ? "fine" : "held";
  setText($("role"), now);
  if (role && role !== now) announce(`This scheduler ${now}`);
  role = now;
  notice(store.who);
}

let lostAt = null;
function notice({ ready, leads, holder }) {
  let text = "";
  if (lostAt !== null) text = `No connection for ${duration((performance.now() - lostAt) / 1000)}: these figures are old. Trying again.`;
  else if (!ready) text = "This scheduler is still reading the cluster from the API server.";
  else if (!leads) text = holder ? `This replica is on standby: ${holder} leads and binds. Nodes are the same there; the queue and the decisions that count are on its page.` : "This replica is on standby; no replica leads at the moment.";
  $("notice").hidden = !text;
  setText($("notice"), text);
}

const WORDS = { connecting: "connecting", live: "live", lost: "no connection" };
function moved(state) {
  $("link").dataset.state = state;
  setText($("link-text"), WORDS[state]);
  document.body.classList.toggle("old", state === "lost");
  if (state === "lost") {
    lostAt ??= performance.now();
    announce("The connection to the scheduler is lost");
  } else if (state === "live") {
    if (lostAt !== null) announce("Connected again");
    lostAt = null;
  }
  notice(store.who ?? { ready: true, leads: true });
}
setInterval(() => lostAt !== null && notice(store.who ?? { ready: true, leads: true }), 1000);

addEventListener("theme", drawSoon);
new Connection("page/live", (kind, message) => {
  store.apply(kind, message);
  drawSoon();
}, moved);

// The queue and the last decisions.

import { $, count, duration, h, podName, pods, setText, timeOfDay } from "./dom.js";

const PLACES = { active: "ready", flight: "binding", backoff: "pausing", waiting: "refused", gated: "gated" };
const RESULTS = { scheduled: "placed", unschedulable: "no node", error: "error", gone: "gone", elsewhere: "bound elsewhere", failed: "binding failed" };

export class Waiting {
  constructor(store, openNode) {
    Object.assign(this, { store, openNode, queue: undefined, decisions: undefined });
    setInterval(() => this.ages(), 1000);
  }

  update() {
    if (this.queue !== this.store.queue) this.drawQueue();
    if (this.decisions !== this.store.decisions) this.drawDecisions();
  }

  drawQueue() {
    const view = (this.queue = this.store.queue);
    const total = Object.values(view.counts).reduce((a, b) => a + b, 0);
    const cells = Object.entries(PLACES).map(([place, label]) =>
      h("div", { class: view.counts[place] ? null : "none" }, h("dt", {}, label), h("dd", {}, count(view.counts[place]))));
    $("counts").replaceChildren(...cells);
    $("blocked").replaceChildren(...this.blocked(view));
    const rows = view.pods.map((pod) => this.queuedPod(pod));
    if (total > view.pods.length && view.pods.length) rows.push(h("li", { class: "quiet" }, `and ${count(total - view.pods.length)} more`));
    if (!total) rows.push(h("li", { class: "empty" }, "The queue is empty."));
    $("queue").replaceChildren(...rows);
    this.ages();
  }

  blocked({ blocked, looked_at }) {
    if (!blocked.length) return [];
    const most = Math.max(...blocked.map(([, number]) => number));
    const rows = blocked.map(([plugins, number]) => {
      const bar = h("i");
      bar.style.transform = `scaleX(${number / most})`;
      return h("li", {}, h("span", {}, plugins), h("span", { class: "meter", "aria-hidden": "true" }, bar), h("span", { class: "value" }, count(number)));
    });
    const note = looked_at >= 5000 ? ` (of the first ${count(looked_at)})` : "";
    return [h("h3", {}, `Held back by${note}`), h("ul", { class: "reasons" }, ...rows)];
  }

  queuedPod(pod) {
    const age = h("span", { class: "quiet push", "data-since": pod.since });
    const tries = pod.attempts > 1 ? h("span", { class: "quiet" }, `${pod.attempts} tries`) : null;
    const state = h("span", { class: "badge", "data-kind": pod.place === "waiting" ? "bad" : "held" }, PLACES[pod.place] ?? pod.place);
    const why = pod.why || pod.by.join(", ");
    return h("li", {}, h("div", { class: "line" }, podName(pod.pod), state, tries, age), why ? h("p", { class: "why" }, why) : null);
  }

  ages() {
    const now = this.store.now();
    for (const age of $("queue").querySelectorAll("[data-since]")) setText(age, duration(now - age.dataset.since));
  }

  drawDecisions() {
    this.decisions = this.store.decisions;
    const rows = this.decisions.map((decision) => decision.element ??= this.decision(decision)); // made once each
    $("decisions").replaceChildren(...(rows.length ? rows : [h("li", { class: "empty" }, "Nothing decided yet.")]));
  }

  decision({ at, pod, node, result, attempt, feasible, nodes, free, why, micros }) {
    const placed = result === "scheduled";
    const kind = placed ? "fine" : result === "unschedulable" ? "held" : "bad";
    const target = node ? h("button", { type: "button", class: "to", onclick: () => this.openNode(node) }, node) : null;
    const line = h("div", { class: "line" }, h("time", { class: "quiet" }, timeOfDay(at)), podName(pod),
      node ? h("span", { class: "arrow", "aria-label": "to" , role: "img" }, "→") : null, target,
      h("span", { class: "badge push", "data-kind": kind }, RESULTS[result] ?? result));
    const text = placed
      ? `${free === null ? "judged without a report" : `${pods(free)} free there`}; ${count(feasible)} of ${count(nodes)} nodes could take it${attempt > 1 ? `; try ${attempt}` : ""}; ${Math.round(micros)} µs`
      : why;
    return h("li", {}, line, text ? h("p", { class: "why" }, text) : null);
  }
}

// Figures of the cluster, and its last ten minutes.

import { $, count, h, pods, setText, short } from "./dom.js";
import { chart, roundUp, spanOf, spanText } from "./chart.js";

const FIGURES = [
  ["nodes", "Nodes", (s) => count(s.nodes), (s) => [s.stale && `${count(s.stale)} stale`, s.cordoned && `${count(s.cordoned)} cordoned`].filter(Boolean).join(", ") || "all report"],
  ["pods", "Pods", (s) => count(s.pods), () => "on these nodes"],
  ["capacity", "Pod-Capacity", (s) => pods(s.capacity), () => "more pods fit"],
  ["reserved", "Reserved", (s) => pods(s.reserved), () => "not counted yet"],
  ["free", "Free", (s) => pods(s.free), () => "available"],
  ["waiting", "Waiting", (s) => count(s.waiting), () => "pods in the queue"],
  ["rate", "Placed", (s) => count(s.bound), (s) => `${pods(s.rate)} per second`],
];

export class Summary {
  constructor(store) {
    this.store = store;
    this.cells = FIGURES.map(([id, label]) => {
      const value = h("span", { class: "big" });
      const note = h("span", { class: "quiet" });
      $("figures").append(h("div", { "data-figure": id }, h("dt", {}, label), h("dd", {}, value, note)));
      return [value, note];
    });
    const key = (name, text) => h("span", { class: `key ${name}` }, h("i", { "aria-hidden": "true" }), text);
    $("trend-legend").append(key("pods", "pods counted"), key("reserved", "reserved"), key("free", "free"), (this.span = h("span", { class: "quiet push" })));
    new ResizeObserver(() => this.trend()).observe($("trend"));
  }

  update() {
    const { summary } = this.store;
    if (!summary) return;
    FIGURES.forEach(([id, , value, note], i) => {
      setText(this.cells[i][0], value(summary));
      setText(this.cells[i][1], note(summary));
      if (id === "nodes") this.cells[i][1].classList.toggle("bad", summary.stale > 0);
    });
    this.trend();
  }

  trend() {
    const { past, summary } = this.store;
    if (!summary) return;
    const times = past.map(([at]) => at);
    const now = this.store.now();
    const span = spanOf(times, now);
    setText(this.span, spanText(span));
    const base = past.map(() => 0);
    const held = past.map(([, running, reserved]) => Math.max(0, running - reserved)); // pods include reserved ones
    const promised = past.map(([, , reserved], i) => held[i] + reserved);
    const all = past.map(([, , , free], i) => promised[i] + free);
    const most = roundUp(Math.max(1, ...all) * 1.05);
    chart($("trend"), {
      times, most, now, span, label: short,
      describe: `Pods ${count(summary.pods)}, reserved ${pods(summary.reserved)}, free ${pods(summary.free)}, over the ${spanText(span)}`,
      series: [
        { class: "free", area: [promised, all] },
        { class: "reserved", area: [held, promised] },
        { class: "pods", area: [base, held] },
      ],
    });
  }
}

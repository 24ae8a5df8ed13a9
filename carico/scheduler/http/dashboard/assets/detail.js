// One node: its figures, its last minutes as two charts, and the pods on it.

import { $, count, duration, h, percent, podName, pods, setText, short } from "./dom.js";
import { chart, follow, roundUp, spanOf, spanText } from "./chart.js";
import { labelOf } from "./nodes.js";
import { isStale, modeOf } from "./store.js";

const KEPT = 610; // s of points
const REFRESH = 15_000; // ms between two requests for the pods of the node

export class Detail {
  constructor(store, beside) {
    Object.assign(this, { store, beside, node: null, details: null, points: [], loads: 0 });
    const dialog = $("detail");
    $("close").addEventListener("click", () => dialog.close());
    $("previous").addEventListener("click", () => this.step(-1));
    $("next").addEventListener("click", () => this.step(1));
    dialog.addEventListener("close", () => this.left());
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close()); // beside the drawer
    dialog.addEventListener("keydown", (event) => {
      if (event.key === "ArrowLeft" && !event.altKey) this.step(-1);
      if (event.key === "ArrowRight" && !event.altKey) this.step(1);
    });
    store.onNode = (node) => this.follow(node);
    addEventListener("resize", () => this.draw());
    setInterval(() => this.node && this.draw(), 1000);
    setInterval(() => this.node && this.load(), REFRESH);
  }

  async open(node) {
    Object.assign(this, { node, details: null, points: [] });
    setText($("detail-title"), node.name);
    $("detail-body").replaceChildren(h("p", { class: "quiet" }, "Reading …"));
    if (!$("detail").open) $("detail").showModal();
    $("detail-title").focus();
    document.title = `${node.name} – Carico`;
    await this.load();
  }

  left() {
    this.node = null;
    document.title = "Carico";
  }

  step(by) {
    const other = this.node && this.beside(this.node, by);
    if (other) this.open(other);
  }

  async load() {
    const name = this.node.name;
    const turn = ++this.loads;
    try {
      const answer = await fetch(`page/node?name=${encodeURIComponent(name)}`);
      if (turn !== this.loads || this.node?.name !== name) return;
      if (!answer.ok) throw new Error(`the scheduler does not know ${name} any more`);
      this.receive(await answer.json());
    } catch (error) {
      if (turn === this.loads && !this.details) $("detail-body").replaceChildren(h("p", { class: "bad" }, `No answer: ${error.message}.`));
    }
  }

  receive(details) {
    const first = !this.details;
    this.details = details;
    const { at, capacity, reserved, usage, pods: running } = details.history;
    const newest = at.at(-1) ?? 0;
    const kept = at.map((time, i) => ({ at: time, capacity: capacity[i], reserved: reserved[i], pods: running[i], usage: usage.map((line) => line[i]) }));
    this.points = [...kept, ...this.points.filter((point) => point.at > newest)];
    if (first) this.build();
    this.pods();
    this.draw();
  }

  /** The stream delivered new figures of this node: the chart is extended without a request. */
  follow(node) {
    if (!this.node || node.name !== this.node.name) return;
    this.node = node;
    const known = isStale(node) ? null : node;
    this.points.push({ at: this.store.now(), capacity: known?.capacity ?? null, reserved: known?.reserved ?? null, pods: known?.pods ?? null, usage: known ? [...node.usage] : [] });
  }

  build() {
    const figure = (id, label) => h("div", {}, h("dt", {}, label), h("dd", { id: `fact-${id}` }));
    const plot = (id, title) => h("figure", {}, h("figcaption", { class: "legend", id: `${id}-legend` }, h("h3", {}, title)), h("div", { class: "chart", id }));
    $("detail-body").replaceChildren(
      h("dl", { class: "facts" }, figure("capacity", "Pod-Capacity"), figure("reserved", "Reserved"), figure("free", "Free"), figure("pods", "Pods"), figure("starting", "Starting")),
      plot("usage-chart", "Usage"), plot("pods-chart", "Pods"),
      h("details", {}, h("summary", {}, "The charts as a table"), h("div", { id: "as-table", class: "wide", tabindex: "0", role: "region", "aria-label": "The charts as a table" })),
      h("h3", {}, "What one pod costs here"), h("div", { id: "costs" }),
      h("h3", {}, "Pods on this node"), h("ul", { class: "pods-here", id: "pods-here" }),
    );
    $("detail-body").scrollTop = 0;
  }

  draw() {
    if (!this.node || !this.details) return;
    const { node, store } = this;
    const [word, kind] = modeOf(node);
    $("detail-state").dataset.kind = kind;
    for (const id of ["capacity", "reserved", "free", "pods", "starting"]) setText($(`fact-${id}`), pods(node[id]));
    const now = store.now();
    const age = this.details.report ? this.details.report.age + now - this.details.now : null;
    setText($("detail-state"), age !== null && isStale(node) ? `${word}, ${duration(age)} old` : word);
    this.points = this.points.filter((point) => point.at > now - KEPT);
    if (!document.querySelector("#detail .chart:hover")) this.charts(now);
    $("previous").disabled = !this.beside(node, -1);
    $("next").disabled = !this.beside(node, 1);
  }

  charts(now) {
    const last = this.points.at(-1);
    const points = last ? [...this.points, { ...last, at: now }] : []; // the last value still holds now
    const times = points.map((point) => point.at);
    const span = spanOf(times, now);
    const dimensions = this.store.dimensions;
    const usage = dimensions.map((name, i) => ({ name: labelOf(name), class: `d${i}`, values: points.map((p) => p.usage[i] ?? null) }));
    this.plot("usage-chart", { times, now, span, most: 1, label: percent, series: usage, show: percent });
    const column = (id) => points.map((point) => point[id]);
    const lines = [
      { name: "Pod-Capacity", class: "capacity", values: column("capacity") },
      { name: "reserved", class: "reserved", values: column("reserved") },
      { name: "pods", class: "pods", values: column("pods") },
    ];
    const most = roundUp(Math.max(2, ...lines.flatMap((one) => one.values.filter((v) => v !== null))) * 1.05);
    this.plot("pods-chart", { times, now, span, most, label: short, series: lines, show: pods });
    this.table(points, dimensions, now);
  }

  plot(id, options) {
    const { times, series, show } = options;
    const latest = series.map((one) => `${one.name} ${show(one.values.at(-1))}`).join(", ");
    const legend = $(`${id}-legend`);
    const write = (index, when) => {
      const keys = series.map((one) => h("span", { class: `key ${one.class}` }, h("i", { "aria-hidden": "true" }), `${one.name} `, h("b", {}, show(one.values.at(index)))));
      legend.replaceChildren(legend.firstChild, ...keys, h("span", { class: "quiet push" }, when));
    };
    write(-1, "now");
    const scale = chart($(id), { ...options, describe: `${latest}; over the ${spanText(options.span)}` });
    if (times.length) follow(scale, times, (i) => write(i, `${duration(options.now - times[i])} ago`), () => write(-1, "now"));
  }

  table(points, dimensions, now) {
    if (!$("as-table").parentElement.open && $("as-table").firstChild) return;
    const head = ["minutes ago", ...dimensions.map(labelOf), "Pod-Capacity", "reserved", "pods"];
    const rows = [];
    for (let minutes = 0; minutes <= 10; minutes++) {
      const point = points.findLast((one) => one.at <= now - 60 * minutes);
      if (point) rows.push([minutes, ...dimensions.map((_, i) => percent(point.usage[i])), pods(point.capacity), pods(point.reserved), pods(point.pods)]);
    }
    const cells = (row) => row.map((value, i) => (i ? h("td", {}, String(value)) : h("th", { scope: "row" }, String(value))));
    $("as-table").replaceChildren(h("table", {},
      h("thead", {}, h("tr", {}, ...head.map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, ...rows.map((row) => h("tr", {}, ...cells(row))))));
  }

  pods() {
    const { report, pods: here, pod_count } = this.details;
    const rows = here.map(([name, phase, standing]) => h("li", {}, podName(name), h("span", { class: "quiet push" }, phase), h("span", { class: "badge", "data-kind": standing === "reserved" ? "held" : "fine" }, standing)));
    if (pod_count > here.length) rows.push(h("li", { class: "quiet" }, `and ${count(pod_count - here.length)} more`));
    $("pods-here").replaceChildren(...(rows.length ? rows : [h("li", { class: "quiet" }, "none")]));
    const cost = report
      ? h("table", {}, h("thead", {}, h("tr", {}, ...["", "one pod", "with no pod"].map((t) => h(t ? "th" : "td", t ? { scope: "col" } : {}, t)))),
          h("tbody", {}, ...report.dimensions.map((name, i) => h("tr", {}, h("th", { scope: "row" }, labelOf(name)), h("td", {}, percentFine(report.cost[i])), h("td", {}, percentFine(report.baseline[i]))))))
      : h("p", { class: "quiet" }, "This node has not reported yet.");
    $("costs").replaceChildren(cost, report ? h("p", { class: "quiet" }, `of this node; ${report.room ? `room for ${report.room}; ` : ""}agent ${report.agent}`) : "");
  }
}

const percentFine = (ratio) => `${(ratio * 100).toFixed(1)} %`;

// The list of nodes: search, filter, sort. rows.js draws the rows in view.

import { $, announce, count, h, setText } from "./dom.js";
import { CORDONED, isStale } from "./store.js";
import { Rows } from "./rows.js";

const RESORT = 2000; // ms between two sorts by changing figures; more often the list would be unreadable

const FEW = 8; // up to this many nodes there is space for the decisions below them

const WHICH = {
  all: () => true,
  room: (node) => !isStale(node) && !(node.state & CORDONED) && node.free >= 1,
  full: (node) => !isStale(node) && node.free < 1,
  stale: isStale,
  cordoned: (node) => (node.state & CORDONED) > 0,
};

// A Map: an object would also have an entry for "constructor", which is not a label.
const LABELS = new Map([["memory", "Memory"], ["cpu", "CPU"], ["memory_pressure", "Mem pressure"], ["io_pressure", "I/O pressure"], ["disk", "Disk"], ["network", "Network"]]);
export const labelOf = (dimension) => LABELS.get(dimension) ?? dimension;

/** Columns: title, sort key, and initial sort direction. */
function columnsFor(dimensions) {
  const usage = dimensions.map((name, i) => ({ id: `usage-${i}`, label: labelOf(name), kind: "usage", i, value: (n) => n.usage[i] ?? -1, down: true }));
  return [
    { id: "name", label: "Node", kind: "name", value: (n) => n.key },
    ...usage,
    { id: "room", label: "Room", kind: "room", value: (n) => n.heldShare, down: true, title: "pods that the node counts, pods reserved, and what is free" },
    { id: "pods", label: "Pods", kind: "number", value: (n) => n.pods, down: true },
    { id: "capacity", label: "Capacity", kind: "number", value: (n) => n.capacity ?? -1, down: true, title: "Pod-Capacity: how many more pods fit, by the node's own report" },
    { id: "reserved", label: "Reserved", kind: "number", value: (n) => n.reserved, down: true, title: "reserved, and not counted by the node yet" },
    { id: "free", label: "Free", kind: "number", value: (n) => n.free ?? -1e9, down: true, title: "Pod-Capacity minus reserved" },
    { id: "mode", label: "State", kind: "mode", value: (n) => n.state, title: "settled: from this second's usage; churn: from what pods cost, while containers come and go" },
  ];
}

export class Nodes {
  constructor(store, open) {
    Object.assign(this, { store, shown: [], sort: "name", down: false, membership: -1, sortedAt: 0, dimensions: null });
    this.rows = new Rows($("grid"), $("space"), (node) => open(node));
    $("search").addEventListener("input", () => this.choose());
    $("which").addEventListener("change", () => this.choose());
    $("sort").addEventListener("change", () => this.sortBy($("sort").value));
    document.addEventListener("keydown", (event) => {
      if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && !document.querySelector("dialog[open]")) {
        event.preventDefault();
        $("search").focus();
      }
    });
  }

  /** After every message. */
  update() {
    if (this.dimensions !== this.store.dimensions.join()) this.head();
    const moving = this.sort !== "name" || $("which").value !== "all";
    if (this.membership !== this.store.membership || (moving && performance.now() - this.sortedAt > RESORT)) this.arrange();
    this.rows.draw();
    this.empty();
    $("main").classList.toggle("few", this.store.nodes.size <= FEW);
  }

  head() {
    this.dimensions = this.store.dimensions.join();
    this.columns = columnsFor(this.store.dimensions);
    $("heads").replaceChildren(...this.columns.map((column) => this.headCell(column)));
    $("sort").replaceChildren(...this.columns.map(({ id, label }) => h("option", { value: id }, `by ${label.toLowerCase()}`)));
    this.rows.use(this.columns);
    this.mark();
  }

  headCell({ id, label, kind, title }) {
    const button = h("button", { type: "button", title, onclick: () => this.sortBy(id) }, label);
    return h("div", { role: "columnheader", class: `cell ${kind}`, "data-column": id }, button);
  }

  sortBy(id) {
    const column = this.columns.find((one) => one.id === id);
    this.down = id === this.sort ? !this.down : Boolean(column.down);
    this.sort = id;
    this.mark();
    this.arrange();
    this.rows.top();
  }

  mark() {
    $("sort").value = this.sort;
    for (const cell of $("heads").children) {
      const sorted = cell.dataset.column === this.sort;
      if (sorted) cell.setAttribute("aria-sort", this.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    }
  }

  /** The user changed search, filter or sort order. */
  choose() {
    this.arrange();
    this.rows.top();
    announce(`${count(this.shown.length)} nodes shown`);
  }

  arrange() {
    const wanted = $("search").value.trim().toLowerCase();
    const passes = WHICH[$("which").value];
    const { value } = this.columns.find((one) => one.id === this.sort) ?? this.columns[0];
    const found = [];
    for (const node of this.store.nodes.values()) {
      if (passes(node) && (!wanted || node.lower.includes(wanted))) found.push([value(node), node]);
    }
    const way = this.down ? -1 : 1;
    found.sort(([a, x], [b, y]) => (a < b ? -way : a > b ? way : x.key < y.key ? -1 : 1));
    this.shown = found.map(([, node]) => node);
    this.membership = this.store.membership;
    this.sortedAt = performance.now();
    this.rows.show(this.shown);
    this.empty();
  }

  empty() {
    const all = this.store.nodes.size;
    const some = this.shown.length;
    setText($("shown"), some === all ? count(all) : `${count(some)} of ${count(all)}`);
    $("empty").hidden = some > 0;
    $("grid").hidden = some === 0;
    if (some === 0) setText($("empty"), all ? "No node fits this search." : "No node yet. Nodes appear here as soon as the API server lists them.");
  }

  /** The node before or after `node` in the current list. */
  beside(node, step) {
    return this.shown[this.shown.findIndex((one) => one.name === node.name) + step];
  }
}

// A long list in which only the rows in view exist. Row elements are reused as the list scrolls.
//
// For the keyboard the grid itself has the focus and names the active row (aria-activedescendant): a focused row could
// be scrolled out of view at any time.

import { h, percent, pods, setText } from "./dom.js";
import { isStale, modeOf } from "./store.js";

const SPARE = 6; // rows drawn beyond each edge

export class Rows {
  constructor(grid, space, open) {
    Object.assign(this, { grid, space, open, shown: [], pool: [], columns: [], active: -1, height: 36, waiting: false });
    grid.addEventListener("scroll", () => this.later(), { passive: true });
    new ResizeObserver(() => this.later()).observe(grid);
    grid.addEventListener("keydown", (event) => this.key(event));
    grid.addEventListener("focus", () => this.activate(Math.max(0, this.active), false));
    space.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row) {
        this.activate(row.index, false);
        this.open(this.shown[row.index]);
      }
    });
  }

  use(columns) {
    this.columns = columns;
    this.pool = [];
    this.space.replaceChildren();
    const usage = columns.filter((column) => column.kind === "usage").length;
    this.grid.style.setProperty("--usage", usage);
    this.grid.setAttribute("aria-colcount", columns.length);
  }

  show(shown) {
    const kept = this.shown[this.active]?.name;
    this.shown = shown;
    this.active = kept === undefined ? -1 : shown.findIndex((node) => node.name === kept);
    this.grid.setAttribute("aria-rowcount", shown.length + 1);
    this.later();
  }

  top() {
    this.grid.scrollTop = 0;
    this.later();
  }

  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  draw() {
    this.height = parseFloat(getComputedStyle(this.grid).getPropertyValue("--row")) || 36;
    const length = `${this.shown.length * this.height}px`;
    if (this.space.style.height !== length) this.space.style.height = length;
    const first = Math.max(0, Math.floor(this.grid.scrollTop / this.height) - SPARE);
    const last = Math.min(this.shown.length, first + Math.ceil(this.grid.clientHeight / this.height) + 2 * SPARE);
    while (this.pool.length < Math.min(this.shown.length, last - first)) this.pool.push(this.newRow());
    const used = new Set();
    for (let index = first; index < last; index++) {
      const row = this.pool[index % this.pool.length];
      used.add(row);
      this.fill(row, index);
    }
    for (const row of this.pool) row.hidden = !used.has(row);
    this.pointAtActive();
  }

  newRow() {
    const cells = this.columns.map(({ kind, label }) => newCell(kind, label));
    const row = h("div", { role: "row", class: "row", id: `row-${this.pool.length}` }, ...cells);
    Object.assign(row, { cells, index: -1, drawn: null, version: -1 });
    this.space.append(row);
    return row;
  }

  fill(row, index) {
    const node = this.shown[index];
    if (row.index !== index || row.tall !== this.height) {
      row.style.transform = `translateY(${index * this.height}px)`;
      row.setAttribute("aria-rowindex", index + 2);
      row.index = index;
      row.tall = this.height;
    }
    const active = index === this.active;
    if (row.wasActive !== active) {
      row.setAttribute("aria-selected", active);
      row.wasActive = active;
    }
    if (row.drawn === node && row.version === node.version) return;
    row.classList.toggle("unsure", isStale(node));
    row.classList.toggle("jump", row.drawn !== node); // another node: its bars must not animate
    row.drawn = node;
    row.version = node.version;
    this.columns.forEach((column, i) => FILL[column.kind](row.cells[i], node, column));
  }

  // --- keyboard ---

  key(event) {
    if (event.target !== this.grid || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.grid.clientHeight / this.height) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in steps) this.activate(this.active + steps[event.key], true);
    else if (event.key === "Enter" && this.shown[this.active]) this.open(this.shown[this.active]);
    else return;
    event.preventDefault();
  }

  activate(index, scroll) {
    this.active = Math.min(Math.max(index, 0), this.shown.length - 1);
    if (scroll) {
      const head = this.grid.querySelector(".head").offsetHeight;
      const top = this.active * this.height;
      const room = this.grid.clientHeight - head - this.height;
      if (top < this.grid.scrollTop) this.grid.scrollTop = top;
      else if (top > this.grid.scrollTop + room) this.grid.scrollTop = top - room;
    }
    this.draw();
  }

  pointAtActive() {
    const row = this.pool.find((one) => !one.hidden && one.index === this.active);
    if (row) this.grid.setAttribute("aria-activedescendant", row.id);
    else this.grid.removeAttribute("aria-activedescendant");
  }
}

function newCell(kind, label) {
  const cell = h("div", { role: "gridcell", class: `cell ${kind}`, "data-label": label });
  if (kind === "usage") cell.append(h("span", { class: "meter" }, h("i")), h("span", { class: "value" }));
  else if (kind === "room") cell.append(h("span", { class: "stack", "aria-hidden": "true" }, h("i", { class: "pods" }), h("i", { class: "reserved" })));
  else if (kind === "mode") cell.append(h("span", { class: "badge" }));
  return cell;
}

const FILL = {
  name(cell, node) {
    setText(cell, node.name);
    cell.title = node.name;
  },
  usage(cell, node, { i }) {
    const value = node.usage[i] ?? null;
    const [meter, text] = cell.children;
    meter.firstChild.style.transform = `scaleX(${Math.min(1, value ?? 0)})`;
    meter.dataset.level = value >= 0.9 ? "high" : value >= 0.75 ? "raised" : "calm";
    setText(text, percent(value));
  },
  room(cell, node) {
    const [counted, held] = cell.firstChild.children;
    counted.style.transform = `scaleX(${node.countedShare})`;
    held.style.transform = `scaleX(${node.heldShare})`;
  },
  number(cell, node, { id }) {
    setText(cell, pods(node[id]));
  },
  mode(cell, node) {
    const [word, kind] = modeOf(node);
    setText(cell.firstChild, word);
    cell.firstChild.dataset.kind = kind;
  },
};

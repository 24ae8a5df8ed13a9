// Classes of pods: measured use, and the suggested request.

import { $, count, h, podName } from "./dom.js";

export class Classes {
  constructor(store) {
    Object.assign(this, { store, drawn: undefined });
  }

  update() {
    const view = this.store.classes;
    if (this.drawn === view || !view) return;
    this.drawn = view;
    const rows = view.rows.map((row) => this.row(row));
    if (view.all > view.rows.length) rows.push(h("li", { class: "quiet" }, `and ${count(view.all - view.rows.length)} more: carico classes`));
    $("classes").replaceChildren(...(rows.length ? rows : [h("li", { class: "empty" }, "No pods yet.")]));
  }

  row({ family, pods, uses, requests, suggested, measured }) {
    const number = h("span", { class: "quiet push" }, pods === 1 ? "1 pod" : `${count(pods)} pods`);
    const text = measured ? `uses ${uses}; requests ${requests}, should request ${suggested}` : `not measured yet; requests ${requests}`;
    return h("li", {}, h("div", { class: "line" }, podName(family), number), h("p", { class: "why" }, text));
  }
}

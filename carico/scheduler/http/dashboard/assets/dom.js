// Helpers for elements and number formats.

export const $ = (id) => document.getElementById(id);

/** An element with properties and children: h("p", {class: "quiet"}, "text"). */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Sets text only if it differs: less work for the browser, and a screen reader does not repeat it. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat("en", { maximumFractionDigits: 1, minimumFractionDigits: 1 });

/** Pods: whole numbers without decimals, small ones with one. */
export function pods(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) >= 100 || Number.isInteger(value) ? whole.format(value) : tenth.format(value);
}

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
/** For an axis: 100K. */
export const short = (value) => compact.format(value);

export const count = (value) => whole.format(value);

export function percent(ratio) {
  return ratio === null || ratio === undefined ? "–" : `${Math.round(ratio * 100)} %`;
}

export function duration(seconds) {
  const s = Math.max(0, seconds);
  if (s < 90) return `${Math.round(s)} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  return s < 129600 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} d`;
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
export const timeOfDay = (seconds) => clock.format(seconds * 1000);

/** "namespace/name" with the namespace in the background. */
export function podName(key) {
  const slash = key.indexOf("/");
  return h("span", { class: "pod", title: key }, h("span", { class: "quiet" }, key.slice(0, slash + 1)), key.slice(slash + 1));
}

let spoken = 0;
/** Announces text to screen readers, at most every three seconds. */
export function announce(text) {
  clearTimeout(spoken);
  spoken = setTimeout(() => setText($("spoken"), text), 300);
}

// Line and area charts over time, as SVG. Redrawn as a whole: a few hundred points are one path.

const NS = "http://www.w3.org/2000/svg";
const GAP = 2.6; // steps without a point that count as a gap

function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const SPANS = [60, 120, 300, 600]; // s

/** The part of the last ten minutes that has data: a page opened a minute after the start has no empty chart. */
export function spanOf(times, now) {
  const known = times.length ? now - times[0] : 0;
  return SPANS.find((span) => span >= known - 1) ?? SPANS.at(-1);
}

export const spanText = (span) => (span === 60 ? "last minute" : `last ${span / 60} minutes`);

/** A round number at or above `value`: 1, 2, 4, 5, 8, 10, 20 … */
export function roundUp(value) {
  if (value <= 1) return 1;
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 3, 4, 5, 6, 8, 10].find((step) => step * size >= value) * size;
}

/** "M…L…" through the points, interrupted where there are none. */
function line(points, x, y) {
  let path = "", pen = false;
  for (const [at, value] of points) {
    if (value === null || value === undefined) pen = false;
    else {
      path += `${pen ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
      pen = true;
    }
  }
  return path;
}

/** The area between two lines of the same points. */
function area(points, low, high, x, y) {
  const run = [];
  const paths = [];
  const end = () => {
    if (run.length > 1) {
      const up = run.map(([at, , top]) => `${x(at).toFixed(1)} ${y(top).toFixed(1)}`).join("L");
      const down = run.reverse().map(([at, bottom]) => `${x(at).toFixed(1)} ${y(bottom).toFixed(1)}`).join("L");
      paths.push(`M${up}L${down}Z`);
    }
    run.length = 0;
  };
  points.forEach((at, i) => (low[i] === null || high[i] === null ? end() : run.push([at, low[i], high[i]])));
  end();
  return paths.join("");
}

/**
 * Draws into `box`. `series`: {name, class, values, area?: [low, high]} over `times`; `span` seconds up to `now`.
 * `label(value)` formats the axis. Returns the scale, for callers that draw on top.
 */
export function chart(box, { times, series, now, span, most, label, describe }) {
  const width = Math.max(120, box.clientWidth), height = Math.max(60, box.clientHeight);
  const left = label ? 44 : 1, right = 4, top = 6, bottom = label ? 20 : 2;
  const x = (at) => left + ((at - now + span) / span) * (width - left - right);
  const y = (value) => height - bottom - (Math.min(value, most) / most) * (height - top - bottom);
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": describe });
  if (label) drawing.append(axes({ x, y, now, span, most, label, width, height, left, right, bottom }));
  for (const one of series) {
    const path = one.area
      ? area(times, one.area[0], one.area[1], x, y)
      : line(withGaps(times, one.values), x, y);
    drawing.append(svg("path", { d: path || "M0 0", class: `${one.area ? "area" : "line"} ${one.class}` }));
  }
  box.replaceChildren(drawing);
  return { x, y, left, right, top, bottom, width, height, drawing };
}

function withGaps(times, values) {
  const points = times.map((at, i) => [at, values[i]]);
  const steps = times.slice(1).map((at, i) => at - times[i]).sort((a, b) => a - b);
  const usual = steps[Math.floor(steps.length / 2)] ?? 1;
  return points.flatMap((point, i) => (i && point[0] - points[i - 1][0] > Math.max(GAP * usual, 8) ? [[point[0], null], point] : [point]));
}

function axes({ x, y, now, span, most, label, width, height, left, right, bottom }) {
  const group = svg("g", { class: "axes", "aria-hidden": "true" });
  for (const part of [0, 0.5, 1]) {
    const at = y(most * part);
    group.append(
      svg("line", { x1: left, x2: width - right, y1: at, y2: at }),
      svg("text", { x: left - 8, y: at + 4, "text-anchor": "end" }, label(most * part)),
    );
  }
  const step = span / (span === 300 ? 5 : 4);
  for (let ago = 0; ago < span; ago += step) {
    const at = x(now - ago);
    const anchor = ago === 0 ? "end" : "middle";
    group.append(svg("text", { x: at, y: height - bottom + 15, "text-anchor": anchor }, ago ? `−${ago % 60 ? `${ago} s` : `${ago / 60} min`}` : "now"));
  }
  return group;
}

/** A line under the pointer, and the figures there through `read(index)`; `leave()` when the pointer leaves. */
export function follow(scale, times, read, leave) {
  const { drawing, x, top, bottom, height } = scale;
  const hair = svg("line", { class: "hair", y1: top, y2: height - bottom, visibility: "hidden" });
  drawing.append(hair);
  drawing.addEventListener("pointermove", (event) => {
    const at = event.clientX - drawing.getBoundingClientRect().left;
    let best = 0;
    times.forEach((time, i) => {
      if (Math.abs(x(time) - at) < Math.abs(x(times[best]) - at)) best = i;
    });
    hair.setAttribute("x1", x(times[best]));
    hair.setAttribute("x2", x(times[best]));
    hair.setAttribute("visibility", "visible");
    read(best);
  });
  drawing.addEventListener("pointerleave", () => {
    hair.setAttribute("visibility", "hidden");
    leave();
  });
}

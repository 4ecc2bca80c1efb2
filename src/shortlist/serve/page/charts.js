// Small SVG charts, drawn for the width that they have; each has a sentence for screen readers.
import { h, percent, s } from "./dom.js";

const LEFT = 56, RIGHT = 20, TOP = 12, BOTTOM = 44, STEPS = 4;

// An element that draws itself again when its width changes.
export function drawn(draw) {
  const place = h("div", { class: "drawn" });
  let width = 0;
  const again = () => { if (width) place.replaceChildren(draw(width)); };
  new ResizeObserver(([entry]) => {
    const found = Math.floor(entry.contentRect.width);
    if (found !== width) { width = found; requestAnimationFrame(again); }
  }).observe(place);
  return { place, again };
}

function frame(width, height, label, xLabel, yMax, yText, yMin = 0) {
  const svg = s("svg", { class: "chart", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  for (let step = 0; step <= STEPS; step += 1) {
    const y = height - BOTTOM - ((height - BOTTOM - TOP) * step) / STEPS;
    svg.append(
      s("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: y, y2: y }),
      s("text", { x: LEFT - 8, y: y + 4, "text-anchor": "end" }, yText(yMin + ((yMax - yMin) * step) / STEPS)));
  }
  svg.append(s("text", { x: (LEFT + width - RIGHT) / 2, y: height - 6, "text-anchor": "middle" }, xLabel));
  return svg;
}

// The next round number above a value, so that the lines of the frame have short labels.
function roundUp(value) {
  if (value <= 0) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 8, 10].map((n) => n * unit).find((one) => one >= value * 0.999);
}

// A share on an axis: decimals only where they are needed.
const axisPercent = (value) => percent(value, Math.abs(value * 100 - Math.round(value * 100)) > 0.01 ? 1 : 0);

// groups: [{label, values: [one per name]}], shares of 1
export function bars(width, label, xLabel, groups, names, height = 240) {
  const max = roundUp(Math.max(0.01, ...groups.flatMap((group) => group.values)));
  const svg = frame(width, height, label, xLabel, max, axisPercent);
  const step = (width - LEFT - RIGHT) / Math.max(groups.length, 1);
  const every = Math.ceil(28 / step);
  const y = (value) => height - BOTTOM - ((height - BOTTOM - TOP) * value) / max;
  groups.forEach((group, index) => {
    const size = (step * 0.8) / group.values.length;
    group.values.forEach((value, which) => {
      svg.append(s("rect", { class: which ? "bar2" : "bar", x: LEFT + (index + 0.1) * step + which * size, width: Math.max(size - 0.5, 1), y: y(value), height: height - BOTTOM - y(value) },
        s("title", {}, `${names[which]}, ${group.label}: ${percent(value, 1)}`)));
    });
    if (index % every === 0) svg.append(s("text", { x: LEFT + (index + 0.5) * step, y: height - BOTTOM + 18, "text-anchor": "middle" }, group.label));
  });
  return svg;
}

// points: [{x, y}] with ascending x
export function lines(width, label, xLabel, points, { yText, xText, whole = false, low = null, high = null, height = 240 }) {
  const xs = points.map((point) => point.x);
  const left = low ?? Math.min(...xs), right = high ?? Math.max(...xs);
  const highest = Math.max(0, ...points.map((point) => point.y));
  const max = whole ? STEPS * roundUp(Math.max(1, highest / STEPS)) : roundUp(highest);
  const lowest = Math.min(0, ...points.map((point) => point.y));
  const min = lowest < 0 ? -Math.max(max, roundUp(-lowest)) : 0, top = lowest < 0 ? -min : max;
  const svg = frame(width, height, label, xLabel, top, yText, min);
  const share = (value) => (right > left ? (value - left) / (right - left) : 0.5);
  const x = (value) => LEFT + (width - LEFT - RIGHT) * share(value);
  const y = (value) => height - BOTTOM - ((height - BOTTOM - TOP) * (value - min)) / (top - min);
  svg.append(s("polyline", { class: "line", points: points.map((point) => `${x(point.x)},${y(point.y)}`).join(" ") }));
  if (points.length < 3) svg.append(...points.map((point) => s("circle", { class: "small-dot", cx: x(point.x), cy: y(point.y), r: 4 })));
  const ticks = right > left ? (width < 420 ? 2 : STEPS) : 0;
  for (let step = 0; step <= ticks; step += 1) {
    const value = ticks ? left + ((right - left) * step) / ticks : left;
    svg.append(s("text", { x: x(value), y: height - BOTTOM + 18, "text-anchor": ticks === 0 ? "middle" : step === 0 ? "start" : step === ticks ? "end" : "middle" }, xText(value)));
  }
  return svg;
}

// points: [{x, y, low, high}] with ascending x; a line in a band, and the level 0
export function band(width, label, xLabel, points, yText, height = 240) {
  const reach = roundUp(Math.max(1e-9, ...points.flatMap((point) => [Math.abs(point.low), Math.abs(point.high)])));
  const svg = frame(width, height, label, xLabel, reach, yText, -reach);
  const first = points[0].x, last = points.at(-1).x;
  const x = (value) => LEFT + (width - LEFT - RIGHT) * (last > first ? (value - first) / (last - first) : 0.5);
  const y = (value) => height - BOTTOM - ((height - BOTTOM - TOP) * (value + reach)) / (2 * reach);
  const corner = (value, bound) => `${x(value)},${y(bound)}`;
  const around = [...points.map((point) => corner(point.x, point.high)), ...[...points].reverse().map((point) => corner(point.x, point.low))];
  svg.append(
    s("polygon", { class: "band", points: around.join(" ") }),
    s("line", { class: "dashed", x1: LEFT, x2: width - RIGHT, y1: y(0), y2: y(0) }),
    s("polyline", { class: "line", points: points.map((point) => corner(point.x, point.y)).join(" ") }));
  if (points.length < 3) {
    for (const point of points) {
      svg.append(s("line", { class: "line", x1: x(point.x), x2: x(point.x), y1: y(point.low), y2: y(point.high) }), s("circle", { class: "small-dot", cx: x(point.x), cy: y(point.y), r: 4 }));
    }
  }
  for (const value of new Set([first, Math.round((first + last) / 2), last])) svg.append(s("text", { x: x(value), y: height - BOTTOM + 18, "text-anchor": "middle" }, String(value)));
  return svg;
}

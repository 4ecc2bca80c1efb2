// Small SVG charts with a title for screen readers.
import { s } from "./dom.js";

const W = 640, H = 260, LEFT = 48, RIGHT = 16, TOP = 12, BOTTOM = 40;

function frame(title, xLabel, yMax, yText) {
  const svg = s("svg", { class: "chart", viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": title });
  for (let step = 0; step <= 4; step += 1) {
    const y = H - BOTTOM - ((H - BOTTOM - TOP) * step) / 4;
    svg.append(
      s("line", { class: "axis", x1: LEFT, x2: W - RIGHT, y1: y, y2: y }),
      s("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, yText((yMax * step) / 4)),
    );
  }
  svg.append(s("text", { x: (LEFT + W - RIGHT) / 2, y: H - 6, "text-anchor": "middle" }, xLabel));
  return svg;
}

const scaleY = (value, max) => H - BOTTOM - ((H - BOTTOM - TOP) * value) / (max || 1);

export function bars(title, xLabel, groups, names) {
  // groups: [{label, values: [now, training]}]
  const max = Math.max(0.01, ...groups.flatMap((group) => group.values));
  const svg = frame(title, xLabel, max, (value) => `${(value * 100).toFixed(0)}%`);
  const width = (W - LEFT - RIGHT) / Math.max(groups.length, 1);
  const every = Math.ceil(groups.length / 16);
  groups.forEach((group, index) => {
    group.values.forEach((value, which) => {
      const size = (width * 0.8) / group.values.length;
      svg.append(
        s("rect", { class: which ? "bar2" : "bar", x: LEFT + index * width + width * 0.1 + which * size, width: Math.max(size - 1, 1), y: scaleY(value, max), height: H - BOTTOM - scaleY(value, max) }, s("title", {}, `${names[which]}, ${group.label}: ${(value * 100).toFixed(1)}%`)),
      );
    });
    if (index % every === 0) svg.append(s("text", { x: LEFT + (index + 0.5) * width, y: H - BOTTOM + 16, "text-anchor": "middle" }, group.label));
  });
  return svg;
}

export function lines(title, xLabel, points, { yText, xText, dot = null, yMin = 0 }) {
  // points: [{x, y}] with ascending x
  const xs = points.map((point) => point.x);
  const low = Math.min(...xs), high = Math.max(...xs, low + 1e-9);
  const max = Math.max(1e-9, ...points.map((point) => point.y)) * 1.1;
  const svg = frame(title, xLabel, max, yText);
  const x = (value) => LEFT + ((W - LEFT - RIGHT) * (value - low)) / (high - low);
  svg.append(s("polyline", { class: "line", points: points.map((point) => `${x(point.x)},${scaleY(Math.max(point.y, yMin), max)}`).join(" ") }));
  for (let step = 0; step <= 4; step += 1) {
    const value = low + ((high - low) * step) / 4;
    svg.append(s("text", { x: x(value), y: H - BOTTOM + 16, "text-anchor": step === 0 ? "start" : step === 4 ? "end" : "middle" }, xText(value)));
  }
  if (dot) svg.append(s("circle", { class: "dot", cx: x(dot.x), cy: scaleY(dot.y, max), r: 7 }));
  return svg;
}

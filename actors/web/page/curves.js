// Curves over the last hour.

import uPlot from "./vendor/uplot.js";
import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { bytes, clock, count, duration } from "./format.js";

const HEIGHT = 150;
const LEAST = 60; // minimum seconds on the time axis
const MARKS = 4; // maximum number of marks on the value axis, besides 0

// Distances between marks: round numbers in the unit that the axis shows.
const upTo = (factors, units) => units.flatMap((unit) => factors.map((factor) => factor * unit));
const powers = (base, from, to) => Array.from({ length: to - from + 1 }, (_, place) => base ** (from + place));
export const COUNTS = upTo([1, 2, 5], powers(10, -2, 15));
const BYTES = upTo([1, 2, 4, 8, 16, 32, 64, 128, 256, 512], powers(1024, 0, 5));
export const SECONDS = [
  ...upTo([1, 2, 5], [0.001, 0.01, 0.1]), 1, 2, 5, 10, 15, 30,
  ...upTo([1, 2, 5, 10, 15, 30], [60]), ...upTo([1, 2, 3, 6, 12], [3600]), ...upTo(upTo([1, 2, 5], powers(10, 0, 5)), [86400]),
];

// A number on an axis, without zeros that say nothing: `1 h 0 min` becomes `1 h`, `2.50 MiB` becomes `2.5 MiB`.
const short = (text) => (/^0(\.0+)? /.test(text) ? "0" : text.replace(/(\.\d*?)0+( |$)/, "$1$2").replace(/\.( |$)/, "$1").replace(/^(\d+ \w+) 0 \w+$/, "$1"));
const countMark = (value) => (value < 10_000 ? Number(value.toPrecision(3)).toLocaleString("en") : short(count(value)));

const CURVES = [
  { title: "Records per second", unit: count, mark: countMark, steps: COUNTS, lines: [["in, all sources", "records_in"], ["out, all sinks", "records_out"]] },
  { title: "Lag of event time", unit: duration, mark: (value) => short(duration(value)), steps: SECONDS, lines: [["lag", "lag"]] },
  { title: "Size of checkpoints", unit: bytes, mark: (value) => short(bytes(value)), steps: BYTES, lines: [["size", "checkpoint_bytes"]] },
  { title: "Duration of checkpoints", unit: duration, mark: (value) => short(duration(value)), steps: SECONDS, lines: [["duration", "checkpoint_seconds"]] },
];

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Marks from 0 to the first one that is not less than the highest value.
export function marksTo(high, steps) {
  if (!(high > 0)) return [0, 1];
  const step = steps.find((each) => high / each <= MARKS) ?? high / MARKS;
  return Array.from({ length: Math.ceil(high / step - 1e-9) + 1 }, (_, place) => place * step);
}

// The width of an axis, which is that of its longest mark.
function widthOf(plot, values, axis) {
  if (!values) return 40;
  plot.ctx.save();
  plot.ctx.font = plot.axes[axis].font[0];
  const widest = Math.max(...values.map((value) => plot.ctx.measureText(value).width)) / devicePixelRatio;
  plot.ctx.restore();
  return Math.ceil(widest) + 20;
}

function optionsFor(lines, mark, steps, width, pointAt) {
  const faint = { stroke: colour("--faint"), font: "12px system-ui, sans-serif", grid: { stroke: colour("--rule"), width: 1 }, ticks: { stroke: colour("--rule"), width: 1 } };
  return {
    width,
    height: HEIGHT,
    cursor: { y: false },
    legend: { show: false },
    hooks: { setCursor: [(plot) => pointAt(plot.cursor.left >= 0 ? plot.cursor.idx : null)] },
    scales: {
      x: { range: (_, low, high) => [Math.min(low, high - LEAST), high] },
      y: { range: (_, low, high) => [0, marksTo(high, steps).at(-1)] },
    },
    axes: [
      { ...faint, size: 34, space: 90, values: (_, marks, axis, space, distance) => marks.map((at) => clock(at, distance < 60)) },
      { ...faint, size: widthOf, splits: (_, axis, low, high) => marksTo(high, steps), values: (_, marks) => marks.map(mark) },
    ],
    series: [{}, ...lines.map(([label], number) => ({ label, stroke: colour(number ? "--second" : "--accent"), width: 1.5, spanGaps: true, points: { show: false } }))],
  };
}

const newest = (samples, field) => samples.findLast((sample) => sample[field] !== null)?.[field];

function Curve({ title, unit, mark, steps, lines, samples }) {
  const place = useRef(null);
  const plot = useRef(null);
  const [pointed, pointAt] = useState(null);
  const data = [samples.map((sample) => sample.at), ...lines.map(([, field]) => samples.map((sample) => sample[field]))];
  const isKnown = data.slice(1).some((line) => line.some((value) => value !== null));
  useEffect(() => {
    if (!isKnown) return undefined;
    plot.current = new uPlot(optionsFor(lines, mark, steps, place.current.clientWidth, pointAt), data, place.current);
    const resized = new ResizeObserver(() => plot.current.setSize({ width: place.current.clientWidth, height: HEIGHT }));
    resized.observe(place.current);
    return () => {
      resized.disconnect();
      plot.current.destroy();
      plot.current = null;
    };
  }, [isKnown]);
  useEffect(() => plot.current?.setData(data), [samples]);
  const at = samples[pointed];
  const last = lines.map(([label, field]) => `${label} ${unit(newest(samples, field))}`).join(", ");
  return html`<figure class="curve"><figcaption>${title}</figcaption>
    <div ref=${place} role="img" aria-label="${title}: ${last}"></div>
    ${isKnown
      ? html`<p class="values">${lines.map(([label, field], number) => html`<span key=${label}><span class="key ${number ? "second" : ""}"></span>${label} <b>${unit(at ? at[field] : newest(samples, field))}</b></span>`)}<span class="faint">${at ? `at ${clock(at.at, true)}` : "last"}</span></p>`
      : html`<p class="faint">nothing measured yet</p>`}
  </figure>`;
}

export function Curves({ samples, live }) {
  if (!live && samples.length === 0) return html`<p class="faint">There are no curves: this server did not see the job run.</p>`;
  return html`<section class="curves" aria-label="Curves over the last hour">${CURVES.map((curve) => html`<${Curve} key=${curve.title} ...${curve} samples=${samples} />`)}</section>`;
}

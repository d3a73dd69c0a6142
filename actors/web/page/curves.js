// Curves over the last hour, of a job and of one of its vertices, with restarts and rescales marked in them.

import uPlot from "./vendor/uplot.js";
import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { jobPath, look } from "./api.js";
import { bytes, clock, count, duration, share } from "./format.js";
import { useDark } from "./media.js";
import { countedBy } from "./operators.js";
import { Notice } from "./parts.js";

export const KEPT = 3600; // seconds of curves
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

const SHARES = [0.1, 0.2, 0.25, 0.5, 1];
const OF_VERTEX = [
  { title: "Records per second", unit: count, mark: countMark, steps: COUNTS, lines: [["in", "records_in"], ["out", "records_out"]] },
  { title: "Share of the time, average of the subtasks", unit: share, mark: share, steps: SHARES, lines: [["busy", "busy"], ["back-pressured", "backpressured"]] },
  { title: "Lag of the watermark", unit: duration, mark: (value) => short(duration(value)), steps: SECONDS, lines: [["lag", "lag"]] },
];

// Restarts and rescales, the oldest first. A takeover of the JobMaster restarts the job, too.
export function eventsOf(report) {
  const restarts = report.history.filter((entry) => entry.kind === "takeover" || entry.to === "restarting").map((entry) => ({ at: entry.at, kind: "restart" }));
  const rescales = report.rescales.map((rescale) => ({ at: rescale.requested_at, kind: "rescale" }));
  return [...restarts, ...rescales].sort((a, b) => a.at - b.at);
}

const within = (events, samples) => events.filter((event) => samples.length && event.at >= samples[0].at && event.at <= samples.at(-1).at);

// One dashed line for each event.
function drawEvents(plot, events) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.lineWidth = devicePixelRatio;
  for (const { at, kind } of events) {
    if (at < plot.scales.x.min || at > plot.scales.x.max) continue;
    const x = Math.round(plot.valToPos(at, "x", true));
    ctx.strokeStyle = colour(kind === "restart" ? "--bad" : "--good");
    ctx.setLineDash(kind === "restart" ? [] : [6 * devicePixelRatio, 4 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

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

function optionsFor(lines, mark, steps, width, pointAt, events) {
  const faint = { stroke: colour("--faint"), font: "12px system-ui, sans-serif", grid: { stroke: colour("--rule"), width: 1 }, ticks: { stroke: colour("--rule"), width: 1 } };
  return {
    width,
    height: HEIGHT,
    cursor: { y: false },
    legend: { show: false },
    hooks: { draw: [(plot) => drawEvents(plot, events.current)], setCursor: [(plot) => pointAt(plot.cursor.left >= 0 ? plot.cursor.idx : null)] },
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

function Curve({ title, unit, mark, steps, lines, samples, events }) {
  const place = useRef(null);
  const plot = useRef(null);
  const marked = useRef(events);
  marked.current = events;
  const [pointed, pointAt] = useState(null);
  const isDark = useDark();
  const data = [samples.map((sample) => sample.at), ...lines.map(([, field]) => samples.map((sample) => sample[field]))];
  const isKnown = data.slice(1).some((line) => line.some((value) => value !== null));
  useEffect(() => {
    if (!isKnown) return undefined;
    plot.current = new uPlot(optionsFor(lines, mark, steps, place.current.clientWidth, pointAt, marked), data, place.current);
    const resized = new ResizeObserver(() => plot.current.setSize({ width: place.current.clientWidth, height: HEIGHT }));
    resized.observe(place.current);
    return () => {
      resized.disconnect();
      plot.current.destroy();
      plot.current = null;
    };
  }, [isKnown, isDark]);
  useEffect(() => plot.current?.setData(data), [samples]);
  const at = samples[pointed];
  const last = lines.map(([label, field]) => `${label} ${unit(newest(samples, field))}`).join(", ") + said(within(events, samples));
  return html`<figure class="curve"><figcaption>${title}</figcaption>
    <div ref=${place} role="img" aria-label="${title}: ${last}"></div>
    ${isKnown
      ? html`<p class="values">${lines.map(([label, field], number) => html`<span key=${label}><span class="key ${number ? "second" : ""}"></span>${label} <b>${unit(at ? at[field] : newest(samples, field))}</b></span>`)}<span class="faint">${at ? `at ${clock(at.at, true)}` : "last"}</span></p>`
      : html`<p class="faint">nothing measured yet</p>`}
  </figure>`;
}

const KINDS = { restart: ["restart", "restarts"], rescale: ["rescale", "rescales"] };

// The numbers of events: `; 2 restarts, 1 rescale`.
function said(events) {
  const parts = Object.entries(KINDS).map(([kind, names]) => [events.filter((event) => event.kind === kind).length, names]).filter(([number]) => number > 0);
  return parts.length ? `; ${parts.map(([number, names]) => `${number} ${names[number > 1 ? 1 : 0]}`).join(", ")}` : "";
}

function Legend({ events, samples }) {
  const kinds = Object.keys(KINDS).filter((kind) => within(events, samples).some((event) => event.kind === kind));
  return kinds.length > 0 && html`<p class="marks faint">Lines across the curves: ${kinds.map((kind) => html`<span key=${kind}><span class="mark ${kind}"></span>${KINDS[kind][0]} </span>`)}</p>`;
}

// Records per second of each operator of a vertex, summed over its subtasks.
export function operatorRates(report, vertex) {
  const known = report.subtasks.filter((each) => each.vertex === vertex && each.rates).map((each) => each.rates.operators);
  const total = (id, field) => (known.some((each) => each[id]) ? known.reduce((sum, each) => sum + (each[id]?.[field] ?? 0), 0) : null);
  const operators = report.graph.vertices.find((each) => each.id === vertex)?.operators ?? [];
  return Object.fromEntries(operators.map(({ id }) => [id, { records_in: total(id, "records_in"), records_out: total(id, "records_out") }]));
}

const AVERAGED = 10; // seconds over which the rate of a counter is averaged

// The lines of a metric's curve, and their values at one time. The values of a counter are its totals.
const KINDS_OF_METRICS = {
  counter: { title: "per second", lines: [["per second", "total"]], of: (value) => ({ total: value }) },
  gauge: { title: "least and greatest of the subtasks", lines: [["greatest", "greatest"], ["least", "least"]], of: ({ least, greatest }) => ({ least, greatest }) },
  histogram: { title: "average of all values", lines: [["average", "average"]], of: ({ total, buckets }) => {
    const values = buckets.reduce((sum, [, each]) => sum + each, 0);
    return { average: values ? total / values : null };
  } },
};

const kindOf = (value) => (typeof value === "number" ? "counter" : value.buckets ? "histogram" : "gauge");

// The metrics of all operators of a vertex now, by `OPERATOR: NAME`.
export function metricsNow(report, vertex) {
  const operators = report.graph.vertices.find((each) => each.id === vertex)?.operators ?? [];
  const found = operators.flatMap(({ id }) => countedBy(report.statistics.operators[id] ?? { extra: {} }).map(([name, value]) => [`${id}: ${name}`, { operator: id, name, kind: kindOf(value), values: KINDS_OF_METRICS[kindOf(value)].of(value) }]));
  return Object.fromEntries(found);
}

// Samples of one metric. A counter becomes a rate, which is unknown at first and after a restart.
export function samplesOf(samples, key, kind) {
  const unknown = Object.fromEntries(KINDS_OF_METRICS[kind].lines.map(([, field]) => [field, null]));
  const known = samples.map(({ at, metrics }) => ({ at, ...(metrics?.[key]?.values ?? unknown) }));
  if (kind !== "counter") return known;
  let from = 0; // the beginning of the time over which the rate is averaged
  return known.map(({ at, total }, place) => {
    const before = place > 0 ? known[place - 1].total : null;
    if (total === null || before === null || before > total) from = place;
    while (from < place && at - known[from + 1].at >= AVERAGED) from += 1;
    return { at, total: from < place ? (total - known[from].total) / (at - known[from].at) : null };
  });
}

// The chosen metrics of each vertex, as long as the page is open.
const CHOSEN = new Map();

// Curves of metrics that the user chooses. They begin when the view is opened: the server does not keep these metrics.
function ChosenCurves({ report, vertex, samples, events }) {
  const place = `${report.job_id} ${vertex}`;
  const [chosen, choose] = useState(CHOSEN.get(place) ?? []);
  const known = metricsNow(report, vertex);
  const keep = (keys) => {
    CHOSEN.set(place, keys);
    choose(keys);
  };
  const left = Object.keys(known).filter((key) => !chosen.includes(key));
  if (left.length === 0 && chosen.length === 0) return null;
  return html`<section aria-label="Curves of metrics of ${vertex}"><h2>Curves of metrics</h2>
    <form class="filter" onSubmit=${(event) => event.preventDefault()}><label>Add a curve <select value="" onChange=${(event) => event.target.value && keep([...chosen, event.target.value])}>
      <option value="">choose a metric</option>${left.map((key) => html`<option key=${key} value=${key}>${key}</option>`)}</select></label>
      <span class="faint">Curves begin when this view is opened.</span></form>
    <div class="curves">${chosen.filter((key) => known[key]).map((key) => {
      const { kind } = known[key];
      const { title, lines } = KINDS_OF_METRICS[kind];
      return html`<div key=${key} class="chosen"><${Curve} title="${key}, ${title}" unit=${count} mark=${countMark} steps=${COUNTS} lines=${lines} samples=${samplesOf(samples, key, kind)} events=${events} />
        <button type="button" aria-label="Remove the curve of ${key}" onClick=${() => keep(chosen.filter((each) => each !== key))}>Remove</button></div>`;
    })}</div></section>`;
}

// Nothing flows into a source or out of a sink.
const linesOf = (operator) => [["in", "records_in"], ["out", "records_out"]].filter(([label]) => !(label === "in" ? operator.is_source : operator.is_sink));

// Records per second of each operator of a chain; an operator alone has the curve of its vertex.
function OperatorCurves({ operators, vertex, samples, events }) {
  if (operators.length < 2) return null;
  return html`<section aria-label="Curves by operator of ${vertex}"><h2>Records per second by operator</h2>
    <div class="curves">${operators.map((operator) => html`<${Curve} key="${vertex} ${operator.id}" title="${operator.id}: ${operator.name}" unit=${count} mark=${countMark} steps=${COUNTS}
      lines=${linesOf(operator)} samples=${samples.map((sample) => ({ at: sample.at, records_in: null, records_out: null, ...sample.operators[operator.id] }))} events=${events} />`)}</div></section>`;
}

// The curves of one vertex. The server has the earlier samples; each new report adds one.
export function VertexCurves({ report, vertex, at, live }) {
  const [samples, setSamples] = useState(null);
  const summary = report.vertices.find((each) => each.id === vertex);
  const operators = report.graph.vertices.find((each) => each.id === vertex)?.operators ?? [];
  const events = eventsOf(report);
  useEffect(() => {
    let wanted = true;
    setSamples(null);
    look(`${jobPath(report.job_id)}/vertices/${encodeURIComponent(vertex)}/samples`).then(
      (answer) => wanted && setSamples(answer.samples),
      () => wanted && setSamples([]),
    );
    return () => {
      wanted = false;
    };
  }, [report.job_id, vertex]);
  useEffect(() => {
    if (!live || !at || !summary || samples === null) return;
    const { records_in, records_out, busy, backpressured, watermark } = summary;
    const lag = watermark === null || watermark > 8.64e15 ? null : Math.max(0, at - watermark / 1e6);
    setSamples((before) => (before.length && before.at(-1).at >= at ? before : [...before.filter((each) => each.at >= at - KEPT), { at, records_in, records_out, busy, backpressured, lag, operators: operatorRates(report, vertex), metrics: metricsNow(report, vertex) }]));
  }, [at, samples === null]);
  if (samples === null) return html`<${Notice}>Loading the curves…<//>`;
  if (samples.length === 0) return html`<p class="faint">There are no curves: this server did not see the vertex run.</p>`;
  return html`<section aria-label="Curves of ${vertex}"><h2>Curves</h2><${Legend} events=${events} samples=${samples} />
    <div class="curves">${OF_VERTEX.map((curve) => html`<${Curve} key="${vertex} ${curve.title}" ...${curve} samples=${samples} events=${events} />`)}</div></section>
    <${OperatorCurves} operators=${operators} vertex=${vertex} samples=${samples} events=${events} />
    ${live && html`<${ChosenCurves} key=${vertex} report=${report} vertex=${vertex} samples=${samples} events=${events} />`}`;
}

export function Curves({ report, samples, live }) {
  if (!live && samples.length === 0) return html`<p class="faint">There are no curves: this server did not see the job run.</p>`;
  const events = eventsOf(report);
  return html`<section aria-label="Curves over the last hour"><${Legend} events=${events} samples=${samples} />
    <div class="curves">${CURVES.map((curve) => html`<${Curve} key=${curve.title} ...${curve} samples=${samples} events=${events} />`)}</div></section>`;
}

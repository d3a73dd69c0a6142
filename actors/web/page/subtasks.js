// The subtasks of a vertex side by side, so that skew shows; and a flame graph of one of them.

import { html, useState } from "./vendor/htm-preact.js";
import { jobPath, look } from "./api.js";
import { bytes, count, duration, percents, rate, share, subtasksOf, today, watermark } from "./format.js";
import { Commits } from "./commits.js";
import { VertexCurves } from "./curves.js";
import { FlameGraph } from "./flame_graph.js";
import { Lag } from "./lag.js";
import { Operators } from "./operators.js";
import { Bar, Dialog, Notice, Status, Table } from "./parts.js";

const UNEVEN = 1.5; // a larger multiple of the average is skew
const BEHIND = 10; // a larger distance in event time is skew; in seconds

const nameOf = (row) => `${row.vertex}[${row.index}]`;

// Event time in seconds; `null` before the first watermark, after the last one, and while the subtask is idle.
function eventTime(row) {
  const at = row.statistics?.current_watermark;
  return at === null || at === undefined || row.statistics.is_idle || Math.abs(at) > 8.64e15 ? null : at / 1e6;
}

// Measures that can be skewed; maxima below `least` are not reported.
const MEASURES = [
  { name: "records", of: (row) => row.rates?.records_in, least: 1, says: (times) => `reads ${times} times as many records as the average` },
  { name: "busy time", of: (row) => row.rates?.busy, least: 0.2, says: (times) => `is busy ${times} times as long as the average` },
  { name: "state", of: (row) => row.state_bytes, least: 64 * 1024, says: (times) => `holds ${times} times as much state as the average` },
];

// Skewed subtasks, each with its measure and a text; and the names of the measures that are known.
export function skews(rows) {
  const found = [];
  const measured = [];
  for (const { name, of, least, says } of MEASURES) {
    const known = rows.filter((row) => of(row) !== null && of(row) !== undefined);
    if (known.length < 2) continue;
    const largest = known.reduce((a, b) => (of(b) > of(a) ? b : a));
    if (of(largest) < least) continue;
    measured.push(name);
    const times = (of(largest) * known.length) / known.reduce((sum, row) => sum + of(row), 0);
    if (times > UNEVEN) found.push({ name, row: largest, text: says(times.toFixed(1)) });
  }
  const timed = rows.filter((row) => eventTime(row) !== null).sort((a, b) => eventTime(a) - eventTime(b));
  if (timed.length > 1) {
    measured.push("event time");
    const behind = eventTime(timed.at(-1)) - eventTime(timed[0]);
    if (behind > BEHIND) found.push({ name: "event time", row: timed[0], text: `is ${duration(behind)} of event time behind the furthest` });
  }
  return { found, measured };
}

function Skew({ rows }) {
  const { found, measured } = skews(rows);
  if (rows.length < 2 || measured.length === 0) return null;
  const standOut = [...new Set(found.map((each) => each.row))];
  const even = measured.filter((name) => !found.some((each) => each.name === name));
  return html`<div class="skews" role="status">${standOut.map((row) => html`<p key=${row.index} class="warn">Skewed: <code>${nameOf(row)}</code> ${found.filter((each) => each.row === row).map((each) => each.text).join("; it ")}.</p>`)}
    ${even.length > 0 && html`<p class="faint">Even: ${even.join(", ")}.</p>`}</div>`;
}

// The shares of a subtask's time, rounded so that they add up to 100 %.
export function timeOf({ rates }) {
  if (!rates) return {};
  const [busy, backpressured, idle] = percents([rates.busy, rates.backpressured, rates.idle]).map((each) => each / 100);
  return { busy, backpressured, idle };
}

export const doing = (subtask) => {
  if (subtask.silence) return `no answer for ${duration(subtask.silence.seconds)}`;
  if (subtask.long_call) return `in ${subtask.long_call.what} for ${duration(subtask.long_call.seconds)}`;
  return "";
};

// The date is left out if it is today; the title has the whole text.
function shortWatermark(row) {
  if (row.statistics?.is_idle) return "idle";
  const text = watermark(row.statistics?.current_watermark);
  const [day, time] = text.split(" ");
  if (!time || !/^\d{4}-/.test(day)) return text;
  return html`<span title=${text}>${day === today() ? time : html`${day}<br />${time}`}</span>`;
}

const columnsFor = (rows, showFlames) => {
  const most = Math.max(0, ...rows.map((row) => row.rates?.records_in ?? 0));
  const standsOut = new Map(skews(rows).found.map((each) => [each.name, each.row]));
  const marked = (name, row, content) => (standsOut.get(name) === row ? html`<span class="warn">${content}</span>` : content);
  return [
    { name: "Subtask", kind: "name", of: (row) => html`<code>${nameOf(row)}</code>`, by: (row) => row.index },
    { name: "Stacks", of: (row) => html`<button disabled=${!row.process} onClick=${() => showFlames(row)} aria-label="Flame graph of ${nameOf(row)}">Flame graph</button>` },
    { name: "State", of: (row) => html`<${Status} value=${row.status} />${doing(row) && html`<span class="doing">${doing(row)}</span>`}`, by: (row) => row.status },
    { name: "Busy", kind: "share", of: (row) => html`<${Bar} value=${timeOf(row).busy} kind="busy" label="busy" />`, by: (row) => row.rates?.busy },
    { name: "Back-pressured", kind: "share", of: (row) => html`<${Bar} value=${timeOf(row).backpressured} kind="blocked" label="back-pressured" />`, by: (row) => row.rates?.backpressured },
    { name: "Idle", kind: "number", of: (row) => share(timeOf(row).idle), by: (row) => row.rates?.idle },
    { name: "Records in", kind: "number", of: (row) => marked("records", row, html`${rate(row.rates?.records_in)}<span class="skew" style=${{ width: `${most ? Math.round((60 * (row.rates?.records_in ?? 0)) / most) : 0}px` }}></span>`), by: (row) => row.rates?.records_in },
    { name: "Records out", kind: "number", of: (row) => rate(row.rates?.records_out), by: (row) => row.rates?.records_out },
    { name: "Bytes in", kind: "number", of: (row) => (row.rates ? `${bytes(Math.round(row.rates.bytes_in))}/s` : "–"), by: (row) => row.rates?.bytes_in },
    { name: "State size", kind: "number", of: (row) => marked("state", row, bytes(row.state_bytes)), by: (row) => row.state_bytes },
    { name: "Watermark", kind: "id", of: (row) => marked("event time", row, shortWatermark(row)), by: eventTime },
    { name: "Process", kind: "id", of: (row) => (row.process ? html`<span title="process ${row.process.pid} on node ${row.process.node_id}">${row.process.pid}<br /><span class="faint">${row.process.node_id.slice(0, 8)}</span></span>` : "–"), by: (row) => row.process?.node_id },
    { name: "Attempt", kind: "number", of: (row) => count(row.attempt) },
  ];
};

export function Subtasks({ report, picked, index, at, live }) {
  const vertices = report.graph.vertices;
  const vertex = vertices.find((each) => each.id === picked) ?? vertices[0];
  const [flames, setFlames] = useState(null);
  if (!vertex) return html`<${Notice}>No subtask is known yet.<//>`;
  const rows = report.subtasks.filter((each) => each.vertex === vertex.id);
  return html`<section class="subtasks">
    <form class="filter" onSubmit=${(event) => event.preventDefault()}><label>Vertex <select value=${vertex.id} onChange=${(event) => { location.hash = subtasksOf(report.job_id, event.target.value); }}>
      ${vertices.map((each) => html`<option key=${each.id} value=${each.id}>${each.id} (${each.parallelism})</option>`)}</select></label>
    </form>
    <${Skew} rows=${rows} />
    <${Table} key=${vertex.id} caption="Subtasks of ${vertex.id}" columns=${columnsFor(rows, setFlames)} rows=${rows} keyOf=${(row) => row.index} picked=${(row) => row.index === index} page=${100} />
    <${Commits} report=${report} vertex=${vertex} />
    <${Lag} report=${report} vertex=${vertex} rows=${rows} />
    <${VertexCurves} report=${report} vertex=${vertex.id} at=${at} live=${live} />
    <${Operators} report=${report} vertex=${vertex} />
    ${flames && html`<${Dialog} title="Flame graph of ${nameOf(flames)}" large onClose=${() => setFlames(null)}>
      <${FlameGraph} ask=${(seconds, type) => look(`${jobPath(report.job_id)}/vertices/${encodeURIComponent(flames.vertex)}/flamegraph?subtask=${flames.index}&seconds=${seconds}&type=${type}`)} />
      <form method="dialog" class="buttons"><button autofocus>Close</button></form><//>`}
  </section>`;
}

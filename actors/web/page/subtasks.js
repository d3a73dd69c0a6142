// The subtasks of a vertex beside each other, so that skew shows; and where one of them spends its time.

import { html, useState } from "./vendor/htm-preact.js";
import { jobPath, look } from "./api.js";
import { bytes, count, duration, rate, share, watermark } from "./format.js";
import { FlameGraph } from "./flame_graph.js";
import { Bar, Dialog, Notice, Status, Table } from "./parts.js";

// How far the largest is above the average: 1 without skew.
export function skew(values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  const sum = known.reduce((a, b) => a + b, 0);
  return known.length > 1 && sum > 0 ? (Math.max(...known) * known.length) / sum : null;
}

const doing = (subtask) => {
  if (subtask.silence) return `no answer for ${duration(subtask.silence.seconds)}`;
  if (subtask.long_call) return `in ${subtask.long_call.what} for ${duration(subtask.long_call.seconds)}`;
  return "";
};

export function Subtasks({ report, picked }) {
  const vertices = report.graph.vertices;
  const vertex = vertices.find((each) => each.id === picked) ?? vertices[0];
  const [flames, setFlames] = useState(null);
  if (!vertex) return html`<${Notice}>No subtask is known yet.<//>`;
  const rows = report.subtasks.filter((each) => each.vertex === vertex.id);
  const most = Math.max(0, ...rows.map((row) => row.rates?.records_in ?? 0));
  const uneven = skew(rows.map((row) => row.rates?.records_in));
  const columns = [
    { name: "Subtask", kind: "id", of: (row) => html`<code>${row.vertex}[${row.index}]</code>` },
    { name: "State", of: (row) => html`<${Status} value=${row.status} />` },
    { name: "Busy", of: (row) => html`<${Bar} value=${row.rates?.busy} kind="busy" label="busy" />` },
    { name: "Back-pressured", of: (row) => html`<${Bar} value=${row.rates?.backpressured} kind="blocked" label="back-pressured" />` },
    { name: "Idle", kind: "number", of: (row) => share(row.rates?.idle) },
    { name: "Records in", kind: "number", of: (row) => html`${rate(row.rates?.records_in)}<span class="skew" style=${{ width: `${most ? Math.round((60 * (row.rates?.records_in ?? 0)) / most) : 0}px` }}></span>` },
    { name: "Records out", kind: "number", of: (row) => rate(row.rates?.records_out) },
    { name: "Bytes in", kind: "number", of: (row) => (row.rates ? `${bytes(Math.round(row.rates.bytes_in))}/s` : "–") },
    { name: "State", kind: "number", of: (row) => bytes(row.state_bytes) },
    { name: "Watermark", kind: "id", of: (row) => (row.statistics?.is_idle ? "idle" : watermark(row.statistics?.current_watermark)) },
    { name: "Process", kind: "id", of: (row) => (row.process ? html`<span title="node ${row.process.node_id}">pid ${row.process.pid} on ${row.process.node_id.slice(0, 8)}</span>` : "–") },
    { name: "Attempt", kind: "number", of: (row) => count(row.attempt) },
    { name: "Doing", of: doing },
    { name: "Flame graph", kind: "id", of: (row) => html`<button disabled=${!row.process} onClick=${() => setFlames(row)} aria-label="Flame graph of ${row.vertex}[${row.index}]">Look for 3 s</button>` },
  ];
  return html`<section>
    <form class="filter" onSubmit=${(event) => event.preventDefault()}><label>Vertex <select value=${vertex.id} onChange=${(event) => { location.hash = `#/jobs/${report.job_id}/subtasks/${encodeURIComponent(event.target.value)}`; }}>
      ${vertices.map((each) => html`<option key=${each.id} value=${each.id}>${each.id} (${each.parallelism})</option>`)}</select></label>
      ${uneven !== null && html`<span role="status" class=${uneven > 1.5 ? "warn" : "faint"}>${uneven > 1.5 ? "skewed: " : ""}the busiest subtask reads ${uneven.toFixed(1)} times the average</span>`}
    </form>
    <${Table} caption="Subtasks of ${vertex.id}" columns=${columns} rows=${rows} keyOf=${(row) => row.index} />
    <h2>Operators of the chain</h2>
    <ul class="plain">${vertex.operators.map((operator) => html`<li key=${operator.id}><code>${operator.id}</code> ${operator.name}${operator.defined_at && html` <span class="faint">${operator.defined_at.file}:${operator.defined_at.line} in ${operator.defined_at.function}</span>`}</li>`)}</ul>
    ${flames && html`<${Dialog} title="Flame graph of ${flames.vertex}[${flames.index}]" onClose=${() => setFlames(null)}>
      <${FlameGraph} ask=${() => look(`${jobPath(report.job_id)}/vertices/${encodeURIComponent(flames.vertex)}/flamegraph?subtask=${flames.index}&seconds=3`)} />
      <form method="dialog"><button>Close</button></form><//>`}
  </section>`;
}

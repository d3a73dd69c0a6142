// Checkpoints: counters, percentiles, the last ones, one by subtask on a time line, two beside each other.

import { html, useState } from "./vendor/htm-preact.js";
import { jobPath, look } from "./api.js";
import { bytes, count, duration, moment } from "./format.js";
import { Figure, Notice, Status, Table, useAnswer } from "./parts.js";

const PAGE = 25;

const COLUMNS = [
  { name: "Id", of: (row) => String(row.checkpoint_id) },
  { name: "Kind", of: (row) => row.kind.replaceAll("_", " ") },
  { name: "State", of: (row) => html`<${Status} value=${row.status} />` },
  { name: "Triggered", kind: "id", of: (row) => moment(row.triggered_at) },
  { name: "Duration", kind: "number", of: (row) => duration(row.duration) },
  { name: "Subtasks", kind: "number", of: (row) => `${row.acknowledged} of ${row.subtasks}` },
  { name: "Size", kind: "number", of: (row) => bytes(row.size) },
  { name: "New bytes", kind: "number", of: (row) => bytes(row.written_bytes) },
  { name: "In flight", kind: "number", of: (row) => bytes(row.in_flight_bytes) },
  { name: "Attempt", kind: "number", of: (row) => String(row.attempt) },
  { name: "Reason", of: (row) => (row.failure ? `${row.failure.replaceAll("_", " ")}: ${row.detail}` : "") },
];

const SUMMARY = { end_to_end_duration: ["Duration", duration], state_size: ["Size", bytes], written_bytes: ["New bytes", bytes], persisted_data: ["In flight", bytes] };
const RANKS = ["min", "p50", "p90", "p99", "max", "avg"];

// Parts of a subtask's checkpoint, in the order in which they pass.
const PARTS = [["start_delay", "start delay"], ["alignment_duration", "alignment"], ["sync_duration", "synchronous"], ["async_duration", "asynchronous"]];

function Details({ job, id }) {
  const { answer, error } = useAnswer(() => look(`${jobPath(job)}/checkpoints/details/${id}`), [job, id]);
  if (error) return html`<${Notice} kind="error">${error.message}<//>`;
  if (!answer) return html`<${Notice}>Asking for checkpoint ${id}…<//>`;
  const rows = answer.by_subtask;
  const longest = Math.max(0.001, ...rows.map((row) => PARTS.reduce((sum, [name]) => sum + row[name], 0)));
  const columns = [
    { name: "Subtask", kind: "id", of: (row) => html`<code>${row.vertex}[${row.subtask}]</code>` },
    { name: "Time line", of: (row) => html`<span class="spans" role="img" aria-label=${PARTS.map(([name, text]) => `${text} ${duration(row[name])}`).join(", ")}>${PARTS.map(([name, text]) => html`<span key=${name} class="span ${name}" title="${text}: ${duration(row[name])}" style=${{ width: `${(100 * row[name]) / longest}%` }}></span>`)}</span>` },
    ...PARTS.map(([name, text]) => ({ name: text, kind: "number", of: (row) => duration(row[name]) })),
    { name: "Bytes in flight", kind: "number", of: (row) => bytes(row.in_flight_bytes) },
    { name: "New bytes", kind: "number", of: (row) => bytes(row.written_bytes) },
  ];
  return html`<section class="detail"><h3>Checkpoint ${id}</h3>
    ${rows.length === 0 ? html`<${Notice}>What each subtask measured is no longer known.<//>` : html`
      <p class="legend">${PARTS.map(([name, text]) => html`<span key=${name}><span class="span ${name}"></span>${text}</span>`)} <span class="faint">longest: ${duration(longest)}</span></p>
      <${Table} caption="Checkpoint ${id} by subtask" columns=${columns} rows=${rows} keyOf=${(row) => `${row.vertex}[${row.subtask}]`} />`}
  </section>`;
}

export function Checkpoints({ report }) {
  const newest = report.checkpoint_history.at(-1);
  const { answer, error } = useAnswer(() => look(`${jobPath(report.job_id)}/checkpoints`), [report.job_id, newest?.checkpoint_id, newest?.status]);
  const [picked, setPicked] = useState([]);
  const [page, setPage] = useState(0);
  if (report.storage === null) return html`<${Notice} kind="warning">This job takes no checkpoints: nothing survives a failure.<//>`;
  if (error) return html`<${Notice} kind="error">${error.message}<//>`;
  if (!answer) return html`<${Notice}>Asking for checkpoints…<//>`;
  const pages = Math.max(1, Math.ceil(answer.history.length / PAGE));
  const pick = (row) => setPicked((before) => (before.includes(row.checkpoint_id) ? before.filter((id) => id !== row.checkpoint_id) : [...before, row.checkpoint_id].slice(-2)));
  const summary = Object.entries(SUMMARY).map(([name, [title, unit]]) => ({ name, title, unit, values: answer.summary[name] }));
  return html`<section>
    <dl class="figures">
      ${["total", "completed", "failed", "in_progress"].map((name) => html`<${Figure} key=${name} name=${name.replace("_", " ")}>${count(answer.counts[name])}<//>`)}
    </dl>
    <h2>Summary of the completed ones</h2>
    <${Table} caption="Summary" rows=${summary} keyOf=${(row) => row.name} columns=${[{ name: "Of", of: (row) => row.title }, ...RANKS.map((rank) => ({ name: rank, kind: "number", of: (row) => row.unit(rank === "avg" && row.values[rank] !== null && row.unit === bytes ? Math.round(row.values[rank]) : row.values[rank]) }))]} />
    <h2>History</h2>
    <p class="faint">Pick one for its subtasks, two to see them beside each other.</p>
    <${Table} caption="Checkpoints, the newest first" columns=${COLUMNS} rows=${answer.history.slice(page * PAGE, (page + 1) * PAGE)} keyOf=${(row) => row.checkpoint_id} onPick=${pick} picked=${(row) => picked.includes(row.checkpoint_id)} />
    ${pages > 1 && html`<p><button disabled=${page === 0} onClick=${() => setPage(page - 1)}>Newer</button> page ${page + 1} of ${pages} <button disabled=${page === pages - 1} onClick=${() => setPage(page + 1)}>Older</button></p>`}
    <div class="beside">${picked.map((id) => html`<${Details} key=${id} job=${report.job_id} id=${id} />`)}</div>
  </section>`;
}

// Checkpoints: counters, percentiles, history, the subtasks of one on a time line, two side by side.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { jobPath, look } from "./api.js";
import { bytes, count, duration, moment } from "./format.js";
import { Figure, Notice, Status, Table, useAnswer } from "./parts.js";

const PAGE = 25;
const RUNNING = ["in_progress", "finalizing"];

const reasonOf = (row) => (row.failure ? [row.failure.replaceAll("_", " "), row.detail].filter(Boolean).join(": ") : "");

// The savepoint that stopped a job is the job's last one.
const kindOf = (row) => (row.kind === "sync_savepoint" ? "last savepoint" : row.kind);

const COLUMNS = [
  { name: "Id", kind: "id", of: (row) => String(row.checkpoint_id) },
  { name: "Kind", of: kindOf },
  { name: "State", of: (row) => html`<${Status} value=${row.status} />` },
  { name: "Triggered", kind: "id", of: (row) => moment(row.triggered_at) },
  { name: "Duration", kind: "number", of: (row) => duration(row.duration), by: (row) => row.duration },
  { name: "Subtasks", kind: "number", of: (row) => `${row.acknowledged} of ${row.subtasks}` },
  { name: "Size", kind: "number", of: (row) => bytes(row.size), by: (row) => row.size },
  { name: "New bytes", kind: "number", of: (row) => bytes(row.written_bytes), by: (row) => row.written_bytes },
  { name: "In flight", kind: "number", of: (row) => bytes(row.in_flight_bytes), by: (row) => row.in_flight_bytes },
  { name: "Attempt", kind: "number", of: (row) => String(row.attempt) },
  // The details have the whole reason, which may be long: Ray explains the death of a process at length.
  { name: "Reason", of: (row) => row.failure && html`<span class="shortened" title=${reasonOf(row)}>${reasonOf(row)}</span>` },
];

const SHOWN = {
  all: ["All", () => true],
  failed: ["Failed", (row) => row.status === "failed"],
  savepoints: ["Savepoints", (row) => row.kind !== "checkpoint"],
  running: ["In progress", (row) => RUNNING.includes(row.status)],
};

const SUMMARY = { end_to_end_duration: ["Duration", duration], state_size: ["Size", bytes], written_bytes: ["New bytes", bytes], persisted_data: ["In flight", bytes] };
const RANKS = ["min", "p50", "p90", "p99", "max", "avg"];

// Parts of a subtask's checkpoint, in the order in which they pass, with the heads of their columns.
const PARTS = [["start_delay", "start delay", "Start"], ["alignment_duration", "alignment", "Align"], ["sync_duration", "synchronous", "Sync"], ["async_duration", "asynchronous", "Async"]];

const endOf = (row) => PARTS.reduce((sum, [name]) => sum + row[name], 0);

// The parts of a subtask's checkpoint as a bar that begins at the trigger; all bars have one scale.
function Spans({ row, scale }) {
  let at = 0;
  return html`<span class="spans" role="img" aria-label=${PARTS.map(([name, text]) => `${text} ${duration(row[name])}`).join(", ")}>${PARTS.map(([name, text]) => {
    const left = (100 * at) / scale;
    at += row[name];
    return html`<span key=${name} class="span ${name}" title="${text}: ${duration(row[name])}" style=${{ left: `${left}%`, width: `${(100 * row[name]) / scale}%` }}></span>`;
  })}</span>`;
}

function Details({ record, answer, error, scale }) {
  const id = record.checkpoint_id;
  const title = `${kindOf(record).replace(/^./, (first) => first.toUpperCase())} ${id}`;
  if (error) return html`<section class="detail"><h3>${title}</h3><${Notice} kind="error">${error.message}<//></section>`;
  if (!answer) return html`<section class="detail"><h3>${title}</h3><${Notice}>Loading the details…<//></section>`;
  const rows = answer.by_subtask;
  const columns = [
    { name: "Subtask", kind: "id", of: (row) => html`<code>${row.vertex}[${row.subtask}]</code>` },
    { name: "Since the trigger", kind: "axis", of: (row) => html`<${Spans} row=${row} scale=${scale} />`, by: endOf },
    ...PARTS.map(([name, , head]) => ({ name: head, kind: "number", of: (row) => duration(row[name]), by: (row) => row[name] })),
    { name: "In flight", kind: "number", of: (row) => bytes(row.in_flight_bytes), by: (row) => row.in_flight_bytes },
    { name: "New", kind: "number", of: (row) => bytes(row.written_bytes), by: (row) => row.written_bytes },
  ];
  return html`<section class="detail"><h3>${title} <${Status} value=${answer.status} /></h3>
    ${RUNNING.includes(answer.status) && html`<${Notice}>In progress, ${answer.acknowledged} of ${answer.subtasks} subtasks so far.<//>`}
    ${answer.status === "failed" && html`<${Notice} kind="error">${reasonOf(answer)}<//>`}
    ${rows.length > 0 && html`
      <p class="legend">${PARTS.map(([name, text]) => html`<span key=${name}><span class="span ${name}"></span>${text}</span>`)} <span class="faint">the bars reach to ${duration(scale)}</span></p>
      <${Table} caption="${title} by subtask" columns=${columns} rows=${rows} keyOf=${(row) => `${row.vertex}[${row.subtask}]`} page=${PAGE} />`}
    ${rows.length === 0 && !RUNNING.includes(answer.status) && html`<${Notice}>The measurements of the subtasks are no longer known.<//>`}
  </section>`;
}

// One checkpoint, or two on one scale. Requests the details again when a checkpoint has progressed.
function Compared({ job, records }) {
  const ref = useRef(null);
  const state = JSON.stringify(records.map((each) => [each.checkpoint_id, each.status, each.acknowledged]));
  const asked = async ({ checkpoint_id: id }) => {
    try {
      return [id, { answer: await look(`${jobPath(job)}/checkpoints/details/${id}`) }];
    } catch (error) {
      return [id, { error }];
    }
  };
  const { answer } = useAnswer(async () => Object.fromEntries(await Promise.all(records.map(asked))), [job, state]);
  useEffect(() => ref.current.scrollIntoView({ block: "nearest" }), [records.map((each) => each.checkpoint_id).join(), answer === null]);
  const rows = records.flatMap((each) => answer?.[each.checkpoint_id]?.answer?.by_subtask ?? []);
  const scale = rows.reduce((most, row) => Math.max(most, endOf(row)), 0.001);
  return html`<div class="beside" ref=${ref}>${records.map((each) => html`<${Details} key=${each.checkpoint_id} record=${each} scale=${scale} ...${answer?.[each.checkpoint_id]} />`)}</div>`;
}

export function Checkpoints({ report }) {
  const state = report.checkpoint_history.slice(-20).map((each) => `${each.checkpoint_id} ${each.status} ${each.acknowledged}`).join();
  const { answer, error } = useAnswer(() => look(`${jobPath(report.job_id)}/checkpoints`), [report.job_id, state]);
  const [picked, setPicked] = useState([]);
  const [shown, setShown] = useState("all");
  if (report.storage === null) return html`<${Notice} kind="warning">This job takes no checkpoints: nothing survives a failure.<//>`;
  if (error) return html`<${Notice} kind="error">${error.message}<//>`;
  if (!answer) return html`<${Notice}>Loading the checkpoints…<//>`;
  const pick = (row) => setPicked((before) => (before.includes(row.checkpoint_id) ? before.filter((id) => id !== row.checkpoint_id) : [...before, row.checkpoint_id].slice(-2)));
  const rows = answer.history.filter(SHOWN[shown][1]);
  const records = picked.map((id) => answer.history.find((row) => row.checkpoint_id === id)).filter(Boolean);
  const under = records.at(-1)?.checkpoint_id;
  const summary = Object.entries(SUMMARY).map(([name, [title, unit]]) => ({ name, title, unit, values: answer.summary[name] }));
  return html`<section>
    <dl class="figures">
      ${["total", "completed", "failed", "in_progress"].map((name) => html`<${Figure} key=${name} name=${name.replace("_", " ")}>${count(answer.counts[name])}<//>`)}
    </dl>
    <h2>Summary ${answer.summarized < answer.counts.completed ? `of the last ${count(answer.summarized)} completed ones` : "of the completed ones"}</h2>
    <${Table} caption="Summary" rows=${summary} keyOf=${(row) => row.name} columns=${[{ name: "Of", of: (row) => row.title }, ...RANKS.map((rank) => ({ name: rank, kind: "number", of: (row) => row.unit(rank === "avg" && row.values[rank] !== null && row.unit === bytes ? Math.round(row.values[rank]) : row.values[rank]) }))]} />
    <h2>History</h2>
    <form class="filter" onSubmit=${(event) => event.preventDefault()}>
      <label>Show <select value=${shown} onChange=${(event) => setShown(event.target.value)}>${Object.entries(SHOWN).map(([name, [title, holds]]) => html`<option key=${name} value=${name}>${title} (${answer.history.filter(holds).length})</option>`)}</select></label>
      <span class="faint">Pick a checkpoint to see its subtasks, or two to compare them.</span>
      ${picked.length > 0 && html`<button type="button" onClick=${() => setPicked([])}>Close the details</button>`}
    </form>
    <${Table} key=${shown} caption="Checkpoints, the newest first" columns=${COLUMNS} rows=${rows} keyOf=${(row) => row.checkpoint_id} onPick=${pick} picked=${(row) => picked.includes(row.checkpoint_id)}
      below=${(row) => row.checkpoint_id === under && html`<${Compared} job=${report.job_id} records=${records} />`} page=${PAGE} turns=${["Newer", "Older"]} />
    ${rows.length === 0 && html`<p class="faint">There is none.</p>`}
  </section>`;
}

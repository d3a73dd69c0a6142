// The content of the newest snapshot, and the value of one key in it.

import { html, useState } from "./vendor/htm-preact.js";
import { jobPath, look } from "./api.js";
import { bytes, count, moment } from "./format.js";
import { Notice, Table, breakable, useAnswer } from "./parts.js";

const KINDS = { checkpoint: "Checkpoint", savepoint: "Savepoint", sync_savepoint: "Last savepoint" };

// Descriptions of keyed state by its class, and of list state by the way in which a restore distributes it.
const HOLDS = {
  keyed: "a value for each key",
  value: "a value for each key",
  list: "a list for each key",
  map: "a map for each key",
  reducing: "a reduced value for each key",
  aggregating: "an aggregate for each key",
};
const LISTS = {
  split_distribute: "a list; each value belongs to one subtask",
  union: "a list; each subtask gets all values",
  broadcast: "a list that is the same in each subtask",
  list: "pieces that the operator encodes itself",
};
const holds = (state) => (state.kind === "keyed" ? (HOLDS[state.holds || "keyed"] ?? state.holds) : (LISTS[state.kind] ?? state.kind)) + (state.has_ttl ? "; entries expire" : "");

const named = (snapshot) => `${KINDS[snapshot.kind] ?? snapshot.kind} ${snapshot.checkpoint_id}`;

// A snapshot in the job's storage is in a folder of its own there; the location of another savepoint is its folder.
function locationOf(report, snapshot) {
  const location = snapshot.location.replace(/\/$/, "");
  const isElsewhere = snapshot.kind !== "checkpoint" && location !== report.storage.replace(/^file:\/\//, "").replace(/\/$/, "");
  return isElsewhere ? location : `${location}/${report.job_id}/${snapshot.kind === "checkpoint" ? "chk" : "savepoint"}-${snapshot.checkpoint_id}-${snapshot.attempt}`;
}

const whereOf = (snapshot) => (snapshot.files === 0 ? "the metadata" : snapshot.files === 1 ? "one file" : `${count(snapshot.files)} files`);

function KeyLookup({ job, snapshot }) {
  const states = snapshot.operators.flatMap((operator) => operator.states.filter((state) => state.kind === "keyed").map((state) => `${operator.operator_id}/${state.name}`));
  const [chosen, setChosen] = useState(states[0] ?? "");
  const [key, setKey] = useState("");
  const [found, setFound] = useState(null);
  if (states.length === 0) return null;
  const ask = async (event) => {
    event.preventDefault();
    const [operator, ...name] = chosen.split("/");
    const path = `${jobPath(job)}/state/${encodeURIComponent(operator)}/${encodeURIComponent(name.join("/"))}`;
    try {
      setFound({ answer: await look(`${path}?${new URLSearchParams({ key })}`) });
    } catch (error) {
      setFound({ error });
    }
  };
  const answer = found?.answer;
  const by = answer && named(answer);
  return html`<h2>Look up a key</h2>
    <form class="filter" onSubmit=${ask}>
      <label>State <select value=${chosen} onChange=${(event) => setChosen(event.target.value)}>${states.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select></label>
      <label>Key <input value=${key} onInput=${(event) => setKey(event.target.value)} placeholder='7 or "seven" or ["a", 1]' /></label>
      <button>Look up</button>
    </form>
    ${found?.error && html`<${Notice} kind="error">${found.error.message}<//>`}
    ${answer && (answer.found
      ? html`<div role="status" class="found"><p>${by} holds for the key <code>${answer.key}</code>:</p>
        <dl class="pairs">${answer.entries.map((entry, number) => html`<div key=${number}><dt><code>${answer.key}${entry.part === null ? "" : ` → ${entry.part}`}</code></dt><dd><code>${entry.value}</code></dd></div>`)}</dl>
        ${answer.more > 0 && html`<p class="faint">and ${count(answer.more)} more</p>`}</div>`
      : html`<${Notice} kind="warning">${by} holds nothing for the key <code>${answer.key}</code> (key group ${answer.key_group}).<//>`)}`;
}

export function SavedState({ report, hidesRecords }) {
  const [asked, setAsked] = useState(0);
  const { answer, error } = useAnswer(() => look(`${jobPath(report.job_id)}/state`), [report.job_id, asked]);
  if (report.storage === null) return html`<${Notice} kind="warning">This job takes no checkpoints, so none of its state is saved.<//>`;
  const again = html`<button onClick=${() => setAsked(asked + 1)}>Read again</button>`;
  if (error) return html`<${Notice} kind="error">${error.message}<//>${again}`;
  if (!answer) return html`<${Notice}>Reading the newest snapshot…<//>`;
  const rows = answer.operators.flatMap((operator) => (operator.states.length ? operator.states : [null]).map((state) => ({ operator, state })));
  const newest = report.checkpoints?.latest_completed_id ?? -1;
  const columns = [
    { name: "Operator", kind: "id", ofGroup: true, of: (row) => html`<code>${row.operator.operator_id}</code>`, by: (row) => row.operator.operator_id },
    { name: "Size", kind: "number", ofGroup: true, of: (row) => bytes(row.operator.size), by: (row) => row.operator.size },
    { name: "State", of: (row) => (row.state ? html`<code>${breakable(row.state.name)}</code>` : "none") },
    { name: "Holds", of: (row) => (row.state ? holds(row.state) : "") },
    { name: "Keys or values", kind: "number", of: (row) => (row.state ? `${row.state.is_exact ? "" : "at most "}${count(row.state.entries)}` : "") },
    { name: "Type", of: (row) => (row.state?.of_type ? html`<code>${row.state.of_type}</code>` : "") },
    { name: "Records in flight", kind: "number", ofGroup: true, of: (row) => count(row.operator.in_flight), by: (row) => row.operator.in_flight },
  ];
  return html`<section>
    <p>${named(answer)} was completed ${moment(answer.completed_at)}. It has ${bytes(answer.size)} in ${whereOf(answer)}. ${again}</p>
    <p class="faint">It is at <code>${locationOf(report, answer)}</code>.${newest > answer.checkpoint_id && ` Checkpoint ${newest} is newer: read again to see it.`}</p>
    <${Table} caption="State by operator" columns=${columns} rows=${rows} groupOf=${(row) => row.operator.operator_id} keyOf=${(row) => `${row.operator.operator_id}/${row.state?.name}`} />
    ${!hidesRecords && html`<${KeyLookup} job=${report.job_id} snapshot=${answer} />`}
  </section>`;
}

// What the newest snapshot holds, and the value of one key in it.

import { html, useState } from "./vendor/htm-preact.js";
import { jobPath, look } from "./api.js";
import { bytes, count, moment } from "./format.js";
import { Notice, Table, useAnswer } from "./parts.js";

function KeyLookup({ job, operators }) {
  const states = operators.flatMap((operator) => operator.states.filter((state) => state.kind === "keyed").map((state) => `${operator.operator_id}/${state.name}`));
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
  return html`<h2>Look up a key</h2>
    <form class="filter" onSubmit=${ask}>
      <label>State <select value=${chosen} onChange=${(event) => setChosen(event.target.value)}>${states.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select></label>
      <label>Key <input value=${key} onInput=${(event) => setKey(event.target.value)} placeholder='7 or "seven" or ["a", 1]' /></label>
      <button>Look up</button>
    </form>
    ${found?.error && html`<${Notice} kind="error">${found.error.message}<//>`}
    ${found?.answer && (found.answer.found
      ? html`<dl class="pairs" role="status">${found.answer.entries.map((entry, number) => html`<div key=${number}><dt><code>${found.answer.key}${entry.part === null ? "" : ` → ${entry.part}`}</code></dt><dd><code>${entry.value}</code></dd></div>`)}</dl>`
      : html`<${Notice} kind="warning">The snapshot holds nothing for the key <code>${found.answer.key}</code> (key group ${found.answer.key_group}).<//>`)}`;
}

export function SavedState({ report }) {
  const [asked, setAsked] = useState(0);
  const { answer, error } = useAnswer(() => look(`${jobPath(report.job_id)}/state`), [report.job_id, asked]);
  if (report.storage === null) return html`<${Notice} kind="warning">This job takes no checkpoints, so none of its state is saved.<//>`;
  const again = html`<button onClick=${() => setAsked(asked + 1)}>Read it again</button>`;
  if (error) return html`<${Notice} kind="error">${error.message}<//>${again}`;
  if (!answer) return html`<${Notice}>Reading the newest snapshot…<//>`;
  const rows = answer.operators.flatMap((operator) => (operator.states.length ? operator.states : [null]).map((state) => ({ operator, state })));
  const columns = [
    { name: "Operator", kind: "id", of: (row) => html`<code>${row.operator.operator_id}</code>` },
    { name: "Size", kind: "number", of: (row) => bytes(row.operator.size) },
    { name: "State", of: (row) => (row.state ? html`<code>${row.state.name}</code>` : "–") },
    { name: "Kind", of: (row) => (row.state ? row.state.holds || row.state.kind : "") },
    { name: "Keys or values", kind: "number", of: (row) => (row.state ? `${row.state.is_exact ? "" : "at most "}${count(row.state.entries)}` : "") },
    { name: "Type", of: (row) => row.state?.of_type ?? "" },
    { name: "In flight", kind: "number", of: (row) => count(row.operator.in_flight) },
  ];
  return html`<section>
    <p>${answer.kind.replaceAll("_", " ")} ${answer.checkpoint_id}, ${bytes(answer.size)} in ${answer.files} files, completed ${moment(answer.completed_at)} <span class="faint">${answer.location}</span> ${again}</p>
    <${Table} caption="State by operator" columns=${columns} rows=${rows} keyOf=${(row) => `${row.operator.operator_id}/${row.state?.name}`} />
    <${KeyLookup} job=${report.job_id} operators=${answer.operators} />
  </section>`;
}

// What a user can ask the job to do: each asks first, shows how far it is, and says the same as a command.

import { html, useState } from "./vendor/htm-preact.js";
import { carryOut, jobPath, look } from "./api.js";
import { bytes, duration } from "./format.js";
import { Dialog, Notice, copy, useAnswer } from "./parts.js";

const quoted = (text) => (/^[\w./:=@-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

const resultOf = (result) => {
  if (result.location) return html`It is at <code>${result.location}</code>. ${(result.warnings ?? []).join(" ")}`;
  if (result.path) return html`Checkpoint ${result.checkpoint_id} took ${duration(result.duration)}: ${bytes(result.size)}, ${bytes(result.written_bytes)} of it new.`;
  return "Done.";
};

function Preview({ job, parallelism }) {
  const text = JSON.stringify(parallelism);
  const { answer, error } = useAnswer(() => look(`${jobPath(job)}/rescale-preview?${new URLSearchParams({ parallelism: text })}`), [job, text]);
  if (error) return html`<${Notice} kind="error">${error.message}<//>`;
  if (!answer || answer.vertices.length === 0) return html`<p class="faint">Change a number to see what moves.</p>`;
  return html`<ul class="plain">${answer.vertices.map((vertex) => html`<li key=${vertex.vertex}><code>${vertex.vertex}</code>: ${vertex.from} → ${vertex.to} subtasks; ${vertex.key_groups_moved} of ${vertex.key_groups} key groups move${vertex.bytes_moved === null ? "" : `, about ${bytes(vertex.bytes_moved)}`}</li>`)}</ul>
    <p class="faint">The job takes a checkpoint and restarts all ${answer.restarts.length} vertices from it. Results stay exactly once.</p>`;
}

const ACTIONS = {
  checkpoint: {
    title: "Checkpoint",
    text: "Takes a checkpoint now, besides the periodic ones. The job goes on.",
    fields: { full: "check" },
    labels: { full: "Write all state anew" },
    request: (given) => ({ method: "POST", path: "/checkpoints", body: { full: Boolean(given.full) } }),
    command: (job, given) => `penstock checkpoint ${job}${given.full ? " --full" : ""}`,
  },
  savepoint: {
    title: "Savepoint",
    text: "Takes a snapshot that is yours, complete in one folder. The job goes on.",
    fields: { target: "text" },
    labels: { target: "Folder (empty: the job's checkpoint storage)" },
    request: (given) => ({ method: "POST", path: "/savepoints", body: given.target ? { "target-directory": given.target } : {} }),
    command: (job, given) => `penstock savepoint ${job}${given.target ? ` ${quoted(given.target)}` : ""}`,
  },
  rescale: { title: "Rescale", text: "Changes the parallelism while the job runs.", rescale: true },
  stop: {
    title: "Stop",
    text: "Takes a savepoint and ends the job. All that it covers is committed.",
    fields: { drain: "check", target: "text" },
    labels: { drain: "Drain: let event time go to its end, open windows fire", target: "Folder (empty: the job's checkpoint storage)" },
    request: (given) => ({ method: "POST", path: "/stop", body: { drain: Boolean(given.drain), ...(given.target ? { "target-directory": given.target } : {}) } }),
    command: (job, given) => `penstock stop ${job}${given.target ? ` ${quoted(given.target)}` : ""}${given.drain ? " --drain" : ""}`,
    danger: true,
  },
  cancel: {
    title: "Cancel",
    text: "Ends the job without a savepoint. What its sinks have committed stays; the rest is dropped.",
    request: () => ({ method: "PATCH", path: "?mode=cancel" }),
    command: (job) => `penstock cancel ${job}`,
    danger: true,
  },
};

function Fields({ report, action, given, set, disabled }) {
  if (action.rescale) {
    return html`<div class="fields">${report.graph.vertices.map((vertex) => html`<label key=${vertex.id}>${vertex.id}
        <input type="number" min="1" max=${vertex.max_parallelism} disabled=${disabled} value=${given[vertex.id] ?? vertex.parallelism} onInput=${(event) => set({ ...given, [vertex.id]: Number(event.target.value) })} /></label>`)}</div>`;
  }
  return html`<div class="fields">${Object.entries(action.fields ?? {}).map(([name, kind]) => (kind === "check"
    ? html`<label key=${name}><input type="checkbox" disabled=${disabled} checked=${given[name] ?? false} onChange=${(event) => set({ ...given, [name]: event.target.checked })} /> ${action.labels[name]}</label>`
    : html`<label key=${name}>${action.labels[name]} <input disabled=${disabled} value=${given[name] ?? ""} onInput=${(event) => set({ ...given, [name]: event.target.value.trim() })} /></label>`))}</div>`;
}

function Confirm({ report, action, onClose }) {
  const [given, set] = useState({});
  const [progress, setProgress] = useState({ state: "asking" });
  const job = report.job_id;
  const changed = Object.fromEntries(report.graph.vertices.filter((vertex) => given[vertex.id] && given[vertex.id] !== vertex.parallelism).map((vertex) => [vertex.id, given[vertex.id]]));
  const request = action.rescale ? { method: "PUT", path: "/resource-requirements", body: { parallelism: changed } } : action.request(given);
  const command = action.rescale ? `penstock rescale ${job} ${Object.entries(changed).map(([id, number]) => quoted(`${id}=${number}`)).join(" ")}` : action.command(job, given);
  const act = async () => {
    setProgress({ state: "running", since: Date.now() });
    try {
      setProgress({ state: "done", result: await carryOut(job, request) });
    } catch (error) {
      setProgress({ state: "failed", error });
    }
  };
  const isAsking = progress.state === "asking";
  return html`<${Dialog} title="${action.title} ${report.name}?" onClose=${onClose}>
    <p>${action.text}</p>
    <${Fields} report=${report} action=${action} given=${given} set=${set} disabled=${!isAsking} />
    ${action.rescale && isAsking && html`<${Preview} job=${job} parallelism=${changed} />`}
    <p class="command"><code>${command}</code> <button type="button" onClick=${() => copy(command)}>Copy as command</button></p>
    ${progress.state === "running" && html`<${Notice}><span class="spinner" aria-hidden="true"></span> ${action.title} goes on. You may close this; the job does not notice.<//>`}
    ${progress.state === "done" && html`<${Notice} kind="good">${resultOf(progress.result)}<//>`}
    ${progress.state === "failed" && html`<${Notice} kind="error">${progress.error.message}<//>`}
    <form method="dialog" class="buttons">
      ${isAsking && html`<button type="button" class=${action.danger ? "danger" : "primary"} disabled=${action.rescale && Object.keys(changed).length === 0} onClick=${act}>${action.title}</button>`}
      <button>${isAsking ? "Leave it" : "Close"}</button>
    </form>
  <//>`;
}

// A dialog stays when the job ends under it: it has the answer.
export function Actions({ report, live }) {
  const [asked, setAsked] = useState(null);
  const takesCheckpoints = report.storage !== null;
  return html`${live && html`<div class="actions" role="group" aria-label="Actions">
    ${Object.entries(ACTIONS).map(([name, action]) => html`<button key=${name} class=${action.danger ? "danger" : ""} disabled=${!takesCheckpoints && name !== "cancel"} onClick=${() => setAsked(name)}>${action.title}</button>`)}
  </div>`}
  ${asked && html`<${Confirm} report=${report} action=${ACTIONS[asked]} onClose=${() => setAsked(null)} />`}`;
}

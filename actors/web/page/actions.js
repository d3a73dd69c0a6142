// Actions on a job. Each asks for confirmation, shows its progress, and shows the equivalent command.

import { html, useRef, useState } from "./vendor/htm-preact.js";
import { carryOut, jobPath, look } from "./api.js";
import { bytes, duration } from "./format.js";
import { Command, Dialog, Elapsed, Notice, useAnswer } from "./parts.js";

const quoted = (text) => (/^[\w./:=@-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

function resultOf(result) {
  if (result.location) return html`It is at <code>${result.location}</code>. ${(result.warnings ?? []).join(" ")}`;
  if (result.path) return html`Checkpoint ${result.checkpoint_id} took ${duration(result.duration)}: ${bytes(result.size)}, ${bytes(result.written_bytes)} of it new.`;
  if (result.parallelism) return Object.entries(result.parallelism).map(([id, number]) => html`<code key=${id}>${id}</code> has ${number} ${number === 1 ? "subtask" : "subtasks"} now. `);
  return "Done.";
}

function Preview({ job, parallelism }) {
  const text = JSON.stringify(parallelism);
  const { answer, error } = useAnswer(() => look(`${jobPath(job)}/rescale-preview?${new URLSearchParams({ parallelism: text })}`), [job, text]);
  if (error) return html`<${Notice} kind="error">${error.message}<//>`;
  if (!answer || answer.vertices.length === 0) return html`<p class="faint">Change a number to see what moves.</p>`;
  return html`<ul class="plain">${answer.vertices.map((vertex) => html`<li key=${vertex.vertex}><code>${vertex.vertex}</code>: ${vertex.from} → ${vertex.to} subtasks; ${vertex.has_keyed_state ? `${vertex.key_groups_moved} of ${vertex.key_groups} key groups ${vertex.key_groups_moved === 1 ? "moves" : "move"}${vertex.bytes_moved === null ? "" : `, about ${bytes(vertex.bytes_moved)}`}` : vertex.text}</li>`)}</ul>
    <p class="faint">The job takes a checkpoint and restarts every vertex from that checkpoint (vertices: ${answer.restarts.length}). Results stay exactly once.</p>`;
}

// `ends` marks actions that end the job.
const ACTIONS = {
  checkpoint: {
    title: "Checkpoint",
    confirm: "Take a checkpoint",
    text: "Takes a checkpoint now, in addition to the periodic ones. The job continues.",
    fields: { full: "check" },
    labels: { full: "Write all state anew" },
    request: (given) => ({ method: "POST", path: "/checkpoints", body: { full: Boolean(given.full) } }),
    command: (job, given) => `penstock checkpoint ${job}${given.full ? " --full" : ""}`,
  },
  savepoint: {
    title: "Savepoint",
    confirm: "Take a savepoint",
    text: "Takes a snapshot that you own, complete in one folder. The job continues.",
    fields: { savepoint: "text" },
    labels: { savepoint: "Folder (empty: the job's checkpoint storage)" },
    request: (given) => ({ method: "POST", path: "/savepoints", body: given.savepoint ? { "target-directory": given.savepoint } : {} }),
    command: (job, given) => `penstock savepoint ${job}${given.savepoint ? ` ${quoted(given.savepoint)}` : ""}`,
  },
  rescale: { title: "Rescale", confirm: "Rescale the job", text: "Changes the parallelism while the job runs.", rescale: true },
  stop: {
    title: "Stop",
    confirm: "Stop the job",
    text: "Takes a savepoint and ends the job. All output before the savepoint is committed.",
    fields: { drain: "check", savepoint: "text" },
    labels: { drain: "Drain: advance event time to its end, so open windows fire", savepoint: "Folder (empty: the job's checkpoint storage)" },
    request: (given) => ({ method: "POST", path: "/stop", body: { drain: Boolean(given.drain), ...(given.savepoint ? { "target-directory": given.savepoint } : {}) } }),
    command: (job, given) => `penstock stop ${job}${given.savepoint ? ` ${quoted(given.savepoint)}` : ""}${given.drain ? " --drain" : ""}`,
    ends: true,
  },
  cancel: {
    title: "Cancel",
    confirm: "Cancel the job",
    text: "Ends the job without a savepoint. Output that its sinks have committed stays; the rest is dropped.",
    request: () => ({ method: "PATCH", path: "?mode=cancel" }),
    command: (job) => `penstock cancel ${job}`,
    ends: true,
  },
};

// What a cancellation deletes, and what stays to continue from.
export function leftByCancel(report) {
  if (report.statistics.last_checkpoint_id === null) return null;
  if (/\.(ALWAYS|FAILURE_OR_CANCELLATION)$/.test(report.settings["checkpointing.keep_after"] ?? "")) return { text: "Its checkpoints stay in the storage." };
  const isSaved = report.checkpoint_history.some((each) => each.kind !== "checkpoint" && each.status === "completed");
  if (isSaved) return { text: "Its checkpoints are deleted. Its savepoints stay." };
  return { kind: "warning", text: "Its checkpoints are deleted, and it has no savepoint. So no later job can continue from its state. Stop ends the job with a savepoint." };
}

function Left({ report }) {
  const left = leftByCancel(report);
  return left && html`<${Notice} kind=${left.kind}>${left.text}<//>`;
}

function Fields({ report, action, given, set, disabled }) {
  if (action.rescale) {
    return html`<div class="fields">${report.graph.vertices.map((vertex, place) => html`<label key=${vertex.id}>${vertex.id}
        <input type="number" min="1" max=${vertex.max_parallelism} autofocus=${place === 0} disabled=${disabled} value=${given[vertex.id] ?? vertex.parallelism} onInput=${(event) => set({ ...given, [vertex.id]: Number(event.target.value) })} /></label>`)}</div>`;
  }
  return html`<div class="fields">${Object.entries(action.fields ?? {}).map(([name, kind], place) => (kind === "check"
    ? html`<label key=${name}><input type="checkbox" autofocus=${place === 0} disabled=${disabled} checked=${given[name] ?? false} onChange=${(event) => set({ ...given, [name]: event.target.checked })} /> ${action.labels[name]}</label>`
    : html`<label key=${name}>${action.labels[name]} <input autofocus=${place === 0} disabled=${disabled} value=${given[name] ?? ""} onInput=${(event) => set({ ...given, [name]: event.target.value.trim() })} /></label>`))}</div>`;
}

// The progress of a request; `children` follow the text.
function Progress({ run, children }) {
  const { title } = ACTIONS[run.name];
  if (run.state === "running") return html`<${Notice}><span class="spinner" aria-hidden="true"></span> ${title} has been running for <${Elapsed} since=${run.since} />. ${children}<//>`;
  if (run.state === "failed") return html`<${Notice} kind="error">${title} has failed after ${duration(run.took)}: ${run.error.message} ${children}<//>`;
  return html`<${Notice} kind="good">${title} has ended after ${duration(run.took)}. ${resultOf(run.result)} ${children}<//>`;
}

function Confirm({ report, action, run, silent, begin, onClose }) {
  const [given, set] = useState({});
  const job = report.job_id;
  const changed = Object.fromEntries(report.graph.vertices.filter((vertex) => given[vertex.id] && given[vertex.id] !== vertex.parallelism).map((vertex) => [vertex.id, given[vertex.id]]));
  const request = action.rescale ? { method: "PUT", path: "/resource-requirements", body: { parallelism: changed } } : action.request(given);
  const command = action.rescale ? `penstock rescale ${job} ${Object.entries(changed).map(([id, number]) => quoted(`${id}=${number}`)).join(" ")}`.trim() : action.command(job, given);
  const isEmpty = action.rescale && Object.keys(changed).length === 0;
  return html`<${Dialog} title="${action.title} ${report.name}?" onClose=${onClose}>
    <p>${action.text}</p>
    ${action === ACTIONS.cancel && !run && html`<${Left} report=${report} />`}
    <${Fields} report=${report} action=${action} given=${given} set=${set} disabled=${Boolean(run)} />
    ${action.rescale && !run && html`<${Preview} job=${job} parallelism=${changed} />`}
    <${Command} text=${command} />
    ${silent && !run && html`<${Notice} kind="warning">The JobMaster does not answer now. Wait until it answers.<//>`}
    ${run && html`<${Progress} run=${run}>${run.state === "running" && "You may close this dialog: the request continues."}<//>`}
    <form method="dialog" class="buttons">
      <button autofocus=${!action.rescale && !action.fields}>${run ? "Close" : "Leave it"}</button>
      ${!run && html`<button type="button" class=${action.ends ? "destroy" : "primary"} disabled=${silent || isEmpty} onClick=${() => begin(request)}>${action.confirm}</button>`}
    </form>
  <//>`;
}

// A dialog stays open when the job ends, because it shows the outcome. After it is closed, a notice shows the outcome.
export function Actions({ report, live, answering = true }) {
  const [asked, setAsked] = useState(null);
  const [runs, setRuns] = useState([]);
  const begun = useRef(0);
  const takesCheckpoints = report.storage !== null;
  const begin = async (name, request) => {
    const run = { number: ++begun.current, name, since: Date.now(), state: "running" };
    const update = (more) => setRuns((before) => before.map((each) => (each.number === run.number ? { ...each, ...more, took: (Date.now() - run.since) / 1000 } : each)));
    setRuns((before) => [...before, run]);
    setAsked({ name, number: run.number });
    try {
      update({ state: "done", result: await carryOut(report.job_id, request) });
    } catch (error) {
      update({ state: "failed", error });
    }
  };
  const dismiss = (number) => setRuns((before) => before.filter((each) => each.number !== number));
  return html`${live && html`<div class="actions" role="group" aria-label="Actions">
    ${Object.entries(ACTIONS).map(([name, action]) => html`<button key=${name} class=${action.ends ? "danger" : ""} disabled=${!answering || (!takesCheckpoints && name !== "cancel")} onClick=${() => setAsked({ name })}>${action.title}</button>`)}
    ${answering ? !takesCheckpoints && html`<span class="faint">This job takes no checkpoints, so it can only be cancelled.</span>` : html`<span class="faint">Actions wait until the JobMaster answers.</span>`}
  </div>`}
  ${runs.filter((run) => run.number !== asked?.number).map((run) => html`<${Progress} key=${run.number} run=${run}>${run.state !== "running" && html`<button type="button" class="link" onClick=${() => dismiss(run.number)}>Dismiss</button>`}<//>`)}
  ${asked && html`<${Confirm} key=${asked.name} report=${report} action=${ACTIONS[asked.name]} run=${runs.find((run) => run.number === asked.number)} silent=${!answering} begin=${(request) => begin(asked.name, request)} onClose=${() => setAsked(null)} />`}`;
}

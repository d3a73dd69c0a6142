// Failures: the root cause first, with the line of the user's program.

import { html } from "./vendor/htm-preact.js";
import { moment } from "./format.js";
import { named } from "./named.js";
import { Empty } from "./parts.js";

const place = (line) => line && html`<code>${line.file}:${line.line}</code> in <code>${line.function}</code>`;

// The lines of all operators of a subtask, because the death of a process names no operator.
function linesOf(report, cause) {
  if (cause.defined_at) return [cause.defined_at];
  const vertex = cause.subtask && report.graph.vertices.find((each) => each.id === cause.subtask[0]);
  const lines = (vertex?.operators ?? []).map((operator) => operator.defined_at).filter(Boolean);
  return lines.filter((line, number) => lines.findIndex((each) => each.file === line.file && each.line === line.line) === number);
}

function Cause({ report, cause }) {
  const lines = linesOf(report, cause);
  return html`<p class="cause">${named(cause.message)}</p>
    <dl class="pairs">
      ${cause.subtask && html`<div><dt>Subtask</dt><dd><code>${cause.subtask[0]}[${cause.subtask[1]}]</code></dd></div>`}
      ${cause.operator && html`<div><dt>Operator</dt><dd><code>${cause.operator}</code></dd></div>`}
      ${cause.kind && html`<div><dt>What failed</dt><dd>${cause.kind}</dd></div>`}
      ${cause.raised_at && html`<div><dt>Raised at</dt><dd>${place(cause.raised_at)}</dd></div>`}
      ${lines.length > 0 && html`<div><dt>${lines.length === 1 ? "Operator" : "Operators"} defined at</dt><dd>${lines.map((line, number) => html`<div key=${number}>${place(line)}</div>`)}</dd></div>`}
    </dl>
    ${cause.traceback && html`<details><summary>Traceback</summary><pre>${cause.traceback}</pre></details>`}`;
}

// A JobMaster keeps so many (`FailureHistory`).
const MOST = 16;

// Failed attempts and deaths of the JobMaster, the oldest first: each of them has restarted the job.
export const failuresOf = (report) => [...report.failures, ...report.history.filter((entry) => entry.kind === "takeover")].sort((a, b) => a.at - b.at);

const isSame = (one, other) => one.root && other.root && one.root.message === other.root.message && String(one.root.subtask) === String(other.root.subtask);

// The newest first; failures in a row with the same cause are one group.
function groupsOf(failures) {
  const groups = [];
  for (const failure of [...failures].reverse()) {
    const group = groups[groups.length - 1];
    if (group && isSame(group[0], failure)) group.push(failure);
    else groups.push([failure]);
  }
  return groups;
}

function titleOf(group) {
  const first = group[group.length - 1].attempt;
  return group.length === 1 ? `Attempt ${first} failed` : `Attempts ${first} to ${group[0].attempt} failed, ${group.length} times in the same way`;
}

export function Failures({ report }) {
  const failures = failuresOf(report);
  if (failures.length === 0) return html`<${Empty} title="No failure"><p>No attempt of this job has failed.</p><//>`;
  const kept = report.failures.length;
  return html`<section>${kept >= MOST && html`<p class="faint">The last ${kept} failures are kept.</p>`}
    <ol class="failures">${groupsOf(failures).map((group) => group[0].kind === "takeover" ? html`
      <li key="takeover ${group[0].at}">
        <h2>The JobMaster died <span class="faint">${moment(group[0].at)}</span></h2>
        <p class="cause">Another process${group[0].process ? ` (pid ${group[0].process.pid})` : ""} became the JobMaster, and restarted the job.</p>
      </li>` : html`
      <li key="${group[0].attempt} ${group[0].at}">
        <h2>${titleOf(group)} <span class="faint">${moment(group[0].at)}</span></h2>
        <${Cause} report=${report} cause=${group[0].root} />
        ${group[0].secondary.length > 0 && html`<details><summary>${group[0].secondary.length} more that followed</summary>${group[0].secondary.map((cause, number) => html`<${Cause} key=${number} report=${report} cause=${cause} />`)}</details>`}
      </li>`)}</ol></section>`;
}

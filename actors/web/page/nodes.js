// The nodes on which the job runs, with their processes: a subtask each, and the JobMaster.

import { html } from "./vendor/htm-preact.js";
import { bytes, count, rate, subtaskOf } from "./format.js";
import { Bar, Empty, Status, Table } from "./parts.js";
import { doing, timeOf } from "./subtasks.js";

const sum = (rows, of) => rows.reduce((total, row) => (of(row) === null || of(row) === undefined ? total : (total ?? 0) + of(row)), null);

// One row for each process, by node; each has the totals of its node.
export function processesOf(report) {
  const master = report.master ? [{ ...report.master, subtask: null }] : [];
  const rows = [...master, ...report.subtasks.filter((each) => each.process).map((subtask) => ({ pid: subtask.process.pid, node_id: subtask.process.node_id, subtask }))];
  const nodes = [...new Set(rows.map((row) => row.node_id))].sort();
  return nodes.flatMap((id) => {
    const own = rows.filter((row) => row.node_id === id);
    const subtasks = own.map((row) => row.subtask).filter(Boolean);
    const node = { id, subtasks: subtasks.length, records_in: sum(subtasks, (each) => each.rates?.records_in), state_bytes: sum(subtasks, (each) => each.state_bytes) };
    return own.map((row) => ({ ...row, node }));
  });
}

const columnsFor = (job) => [
  { name: "Node", kind: "id", ofGroup: true, of: ({ node }) => html`<code title=${node.id}>${node.id.slice(0, 8)}</code>`, by: (row) => row.node_id },
  { name: "Subtasks", kind: "number", ofGroup: true, of: ({ node }) => count(node.subtasks) },
  { name: "Records in, node", kind: "number", ofGroup: true, of: ({ node }) => rate(node.records_in) },
  { name: "State size, node", kind: "number", ofGroup: true, of: ({ node }) => bytes(node.state_bytes) },
  { name: "Process", kind: "id", of: (row) => row.pid },
  { name: "Runs", kind: "name", of: ({ subtask }) => (subtask ? html`<a href=${subtaskOf(job, { vertex: subtask.vertex, subtask: subtask.index })}><code>${subtask.vertex}[${subtask.index}]</code></a>` : "JobMaster") },
  { name: "State", of: ({ subtask }) => subtask && html`<${Status} value=${subtask.status} />${doing(subtask) && html`<span class="doing">${doing(subtask)}</span>`}` },
  { name: "Busy", kind: "share", of: ({ subtask }) => subtask && html`<${Bar} value=${timeOf(subtask).busy} kind="busy" label="busy" />` },
  { name: "Back-pressured", kind: "share", of: ({ subtask }) => subtask && html`<${Bar} value=${timeOf(subtask).backpressured} kind="blocked" label="back-pressured" />` },
  { name: "Records in", kind: "number", of: ({ subtask }) => subtask && rate(subtask.rates?.records_in) },
  { name: "State size", kind: "number", of: ({ subtask }) => subtask && bytes(subtask.state_bytes) },
];

export function Nodes({ report }) {
  const rows = processesOf(report);
  if (rows.length === 0) return html`<${Empty} title="No process"><p>No process of this job is known.</p><//>`;
  const without = report.subtasks.filter((each) => !each.process).length;
  return html`<section class="subtasks">
    ${without > 0 && html`<p class="faint">${without === 1 ? "1 subtask has" : `${without} subtasks have`} no process.</p>`}
    <${Table} caption="Processes by node" columns=${columnsFor(report.job_id)} rows=${rows} groupOf=${(row) => row.node_id} keyOf=${(row) => `${row.node_id} ${row.pid}`} page=${100} />
  </section>`;
}

// The operators of a vertex, with what they have counted in this attempt: records, Penstock's counters, metrics of users.

import { html } from "./vendor/htm-preact.js";
import { DASH } from "./format.js";
import { Table } from "./parts.js";

// Totals are shown exactly, because they are compared with each other.
const total = (value) => (value === undefined ? DASH : value.toLocaleString("en"));
const number = (value) => (Number.isInteger(value) ? total(value) : Number(value.toPrecision(4)).toLocaleString("en"));
const span = ({ least, greatest }) => (least === greatest ? number(least) : `${number(least)} to ${number(greatest)}`);

// A counter is a number. A gauge of several subtasks has the least and the greatest of their values.
function metric(value) {
  if (typeof value === "number") return number(value);
  if (!value.buckets) return span(value);
  const values = value.buckets.reduce((sum, [, each]) => sum + each, 0);
  return values ? `${total(values)} values, ${span(value)}, average ${number(value.total / values)}` : "no values";
}

// The names and values of everything that an operator counts besides its records.
export function countedBy(counted) {
  const lost = Object.entries({ records_skipped: counted.records_skipped, dead_letters: counted.dead_letters }).filter(([, value]) => value > 0);
  return [...lost, ...Object.entries(counted.extra).sort(([a], [b]) => a.localeCompare(b))];
}

export const metricsOf = (counted) => countedBy(counted).map(([name, value]) => [name, metric(value)]);

const columnsFor = (counters) => {
  const of = (row) => counters[row.id];
  return [
    { name: "Operator", kind: "name", of: (row) => html`<code>${row.id}</code> ${row.name}${row.defined_at && html`<br /><span class="faint">${row.defined_at.file}:${row.defined_at.line} in ${row.defined_at.function}</span>`}` },
    { name: "Records in", kind: "number", of: (row) => total(row.is_source ? undefined : of(row)?.records_in) },
    { name: "Records out", kind: "number", of: (row) => total(row.is_sink ? undefined : of(row)?.records_out) },
    { name: "Counters and metrics", of: (row) => of(row) && html`<ul class="plain">${metricsOf(of(row)).map(([name, text]) => html`<li key=${name}><code>${name}</code> ${text}</li>`)}</ul>` },
  ];
};

export function Operators({ report, vertex }) {
  return html`<h2>Operators of the chain</h2>
    <p class="faint">Totals of attempt ${report.statistics.attempt}, over all subtasks.</p>
    <${Table} key=${vertex.id} caption="Operators of ${vertex.id}" columns=${columnsFor(report.statistics.operators)} rows=${vertex.operators} keyOf=${(row) => row.id} />`;
}

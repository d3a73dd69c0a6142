// What a source has not read yet: in all, and by split with its trend.

import { html } from "./vendor/htm-preact.js";
import { DASH, bytes, count, duration, moment } from "./format.js";
import { Table } from "./parts.js";

const LEAST = 0.5; // a smaller growth per second is none

const isKnown = (value) => value !== null && value !== undefined;

// Whether a lag grows, in records or bytes per second; `left` and `growth` have the same unit.
export function trendOf(left, growth, unit) {
  if (!isKnown(growth) || !isKnown(left)) return DASH;
  if (Math.abs(growth) < LEAST) return "stays";
  if (growth > 0) return `grows by ${unit(Math.round(growth))}/s`;
  return `shrinks by ${unit(Math.round(-growth))}/s${left > 0 ? `, gone in about ${duration(left / -growth)}` : ""}`;
}

// One row for each split that a subtask of the vertex lists.
export function splitsOf(rows, operator) {
  return rows.flatMap((row) => {
    const growth = row.rates?.operators?.[operator]?.lag_by_split ?? {};
    return (row.statistics?.operators?.[operator]?.lag?.by_split ?? []).map((split) => ({ ...split, subtask: `${row.vertex}[${row.index}]`, growth: growth[split.split] }));
  });
}

const inRecords = (split) => isKnown(split.records);
const trend = (split) => (inRecords(split) ? trendOf(split.records, split.growth, count) : trendOf(split.bytes, split.growth, bytes));
const exact = (value) => (isKnown(value) ? value.toLocaleString("en") : DASH);

const COLUMNS = [
  { name: "Split", kind: "id", of: (split) => html`<code>${split.split}</code>`, by: (split) => split.split },
  { name: "Subtask", kind: "id", of: (split) => html`<code>${split.subtask}</code>`, by: (split) => split.subtask },
  { name: "Position", kind: "number", of: (split) => exact(split.position), by: (split) => split.position },
  { name: "End", kind: "number", of: (split) => exact(split.end), by: (split) => split.end },
  { name: "Lag", kind: "number", of: (split) => (inRecords(split) || !isKnown(split.bytes) ? exact(split.records) : bytes(split.bytes)), by: (split) => split.records ?? split.bytes },
  { name: "Trend", of: trend, by: (split) => split.growth },
];

// The version of a table that is read, and how far behind the newest one it is.
function versionOf({ version, newest, behind, committed_at: at }) {
  const read = `version ${version}${isKnown(at) ? `, committed ${moment(at)}` : ""}`;
  if (!isKnown(behind)) return read;
  return behind === 0 ? `${read}, the newest` : `${read}, ${exact(behind)} behind the newest, ${newest}`;
}

function inAll(lag, rows, operator) {
  const growths = rows.map((row) => row.rates?.operators?.[operator]).filter(Boolean);
  const sum = (name) => (growths.length && growths.every((each) => isKnown(each[name])) ? growths.reduce((total, each) => total + each[name], 0) : null);
  const parts = lag.version ? [versionOf(lag.version)] : [];
  if (isKnown(lag.records)) parts.push(`${exact(lag.records)} records, ${trendOf(lag.records, sum("lag_records"), count)}`);
  if (isKnown(lag.bytes) && !isKnown(lag.records)) parts.push(`${bytes(lag.bytes)}, ${trendOf(lag.bytes, sum("lag_bytes"), bytes)}`);
  return [...parts, `${exact(lag.splits)} splits`].join("; ").replace(`, ${DASH}`, "");
}

export function Lag({ report, vertex, rows }) {
  const source = vertex.operators[0];
  const lag = source && report.statistics.operators[source.id]?.lag;
  if (!lag) return null;
  const splits = splitsOf(rows, source.id);
  return html`<section aria-label="Lag of ${source.id}">
    <h2>Left to read</h2>
    <p role="status">${inAll(lag, rows, source.id)}</p>
    ${splits.length > 0 && html`<${Table} key=${source.id} caption="Lag of ${source.id} by split" columns=${COLUMNS} rows=${splits} keyOf=${(split) => `${split.subtask} ${split.split}`} page=${100} />`}
  </section>`;
}

// The newest commit of each sink of a vertex: version, rows, files and time.

import { html } from "./vendor/htm-preact.js";
import { DASH, moment } from "./format.js";
import { Table } from "./parts.js";

const exact = (value) => (value === null || value === undefined ? DASH : value.toLocaleString("en"));

const COLUMNS = [
  { name: "Operator", kind: "name", of: ({ operator }) => html`<code>${operator}</code>` },
  { name: "Version", kind: "id", of: ({ commit }) => html`<code>${commit.version ?? DASH}</code>` },
  { name: "Rows", kind: "number", of: ({ commit }) => exact(commit.rows) },
  { name: "Files", kind: "number", of: ({ commit }) => exact(commit.files) },
  { name: "Checkpoint", kind: "number", of: ({ commit }) => exact(commit.checkpoint_id) },
  { name: "Committed", kind: "id", of: ({ commit }) => moment(commit.at) },
];

export function Commits({ report, vertex }) {
  const rows = vertex.operators
    .map(({ id }) => ({ operator: id, commit: report.statistics.operators[id]?.last_commit }))
    .filter(({ commit }) => commit);
  if (rows.length === 0) return null;
  return html`<section>
    <h2>Last commit</h2>
    <${Table} key=${vertex.id} caption="Last commit of ${vertex.id}" columns=${COLUMNS} rows=${rows} keyOf=${({ operator }) => operator} page=${100} />
  </section>`;
}

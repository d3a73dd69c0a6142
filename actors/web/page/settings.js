// The settings of the job, and where it keeps and runs what.

import { html } from "./vendor/htm-preact.js";
import { Notice, Table } from "./parts.js";

export function Settings({ report }) {
  const rows = Object.entries(report.settings).map(([name, value]) => ({ name, value }));
  const columns = [{ name: "Setting", kind: "id", of: (row) => html`<code>${row.name}</code>` }, { name: "Value", of: (row) => html`<code>${row.value}</code>` }];
  return html`<section>
    <dl class="pairs">
      <div><dt>Checkpoint storage</dt><dd>${report.storage ? html`<code>${report.storage}</code>` : "none"}</dd></div>
      <div><dt>JobMaster</dt><dd>${report.master ? html`pid ${report.master.pid} on node <code>${report.master.node_id.slice(0, 8)}</code>` : "has left"}</dd></div>
      ${report.savepoint && html`<div><dt>Stopped with</dt><dd><code>${report.savepoint}</code></dd></div>`}
    </dl>
    ${rows.length ? html`<${Table} caption="Settings" columns=${columns} rows=${rows} keyOf=${(row) => row.name} />` : html`<${Notice}>An older version ran this job, and kept no settings.<//>`}
  </section>`;
}

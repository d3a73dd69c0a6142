// What flows on an edge: ten records of now, taken when a person asks for them. It asks again until some come.

import { html, useEffect, useState } from "./vendor/htm-preact.js";
import { jobPath, look } from "./api.js";
import { duration, watermark } from "./format.js";
import { Dialog, Notice, Table, useAnswer } from "./parts.js";

export function EdgeRecords({ job, place, edge, onClose }) {
  const [asked, setAsked] = useState(0);
  const { answer, error, waits } = useAnswer(() => look(`${jobPath(job)}/edges/${place}/records`), [job, place, asked]);
  const none = answer !== null && answer.records.length === 0;
  useEffect(() => {
    if (waits || !none) return;
    const timer = setTimeout(() => setAsked((before) => before + 1), 1000);
    return () => clearTimeout(timer);
  }, [waits, none]);
  const rows = (answer?.records ?? []).map((record, number) => ({ ...record, number }));
  const columns = [
    { name: "From", kind: "id", of: (row) => html`<code>${edge.source}[${row.subtask}]</code>` },
    ...(rows.some((row) => row.timestamp !== null) ? [{ name: "Event time", kind: "id", of: (row) => watermark(row.timestamp) }] : []),
    { name: "Record", of: (row) => html`<code class="record">${row.text}</code>` },
  ];
  return html`<${Dialog} title="Records from ${edge.source} to ${edge.target}" large onClose=${onClose}>
    ${error && html`<${Notice} kind="error">${error.message}<//>`}
    ${waits && !answer && html`<${Notice}><span class="spinner" aria-hidden="true"></span> Waiting for the next records…<//>`}
    ${none && html`<${Notice}><span class="spinner" aria-hidden="true"></span> No record came within ${duration(answer.seconds)}. Waiting for the next records…<//>`}
    ${rows.length > 0 && html`<${Table} caption="Records of now" columns=${columns} rows=${rows} keyOf=${(row) => row.number} />`}
    <p class="faint">These are the next records that the senders sent. They are shown here only: no log or report keeps them.</p>
    <form method="dialog" class="buttons"><button type="button" disabled=${waits} onClick=${() => setAsked(asked + 1)}>Take again</button> <button autofocus>Close</button></form><//>`;
}

// The settings of the job, its checkpoint storage and its JobMaster.

import { html, useState } from "./vendor/htm-preact.js";
import { bytes, duration } from "./format.js";
import { Notice, Table, breakable } from "./parts.js";
import { DEFAULTS, GROUPS, SECONDS } from "./setting_names.js";

const WORDS = { True: "yes", False: "no", HeapState: "memory (HeapState)", Checkpointing: "on", "": "empty" };
// Texts for `None`; other settings show "none".
const NONE = {
  checkpointing: "off",
  restart: "up to ten restarts if it takes checkpoints, else none",
  "checkpointing.storage": "the default",
  "checkpointing.tolerable_failures": "any number",
  "checkpointing.max_alignment_bytes": "no limit",
  "restart.attempts": "any number",
  "state_backend.folder": "the temporary folder of each node",
};

// A setting as people write it: with its unit, and without Python's spelling.
export function settingText(name, value) {
  if (value === "None") return NONE[name] ?? "none";
  if (value in WORDS) return WORDS[value];
  const last = name.split(".").pop();
  if (/^-?\d+(\.\d+)?(e[+-]?\d+)?$/.test(value)) {
    const number = Number(value);
    if (SECONDS.has(last)) return number === 0 ? "0 s" : duration(number).replace(/ 0 (s|min|h)$/, "").replace(/\.0 s$/, " s");
    if (last.endsWith("_bytes") || last.endsWith("memory")) return bytes(number).replace(/\.0+ /, " ");
    return number.toLocaleString("en", { maximumFractionDigits: 6 });
  }
  const member = /^[A-Z]\w*\.([A-Z][A-Z0-9_]*)$/.exec(value)?.[1]; // of an enum
  if (member) return member.toLowerCase().replaceAll("_", " ");
  if (/^[a-z]+(_[a-z]+)+$/.test(value)) return value.replaceAll("_", " ");
  if (/^[A-Z][a-z]+([A-Z][a-z]+)+$/.test(value)) return value.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase(); // a class
  return value;
}

// The default of a setting, if any. A default in a part, such as a restart strategy, depends on the part's class.
function defaultOf(name, settings) {
  const [part, rest] = name.split(".");
  return rest === undefined ? DEFAULTS[name] : DEFAULTS[`${settings[part]}.${rest}`];
}

const groupOf = (name) => Object.keys(GROUPS).find((title) => GROUPS[title].includes(name.split(".")[0])) ?? "Others";

export function Settings({ report }) {
  const [text, setText] = useState("");
  const [onlyChanged, setOnlyChanged] = useState(false);
  const rows = Object.entries(report.settings).map(([name, value]) => {
    const usual = defaultOf(name, report.settings);
    return { name, value, text: settingText(name, value), usual, isChanged: usual !== value };
  });
  const sought = text.trim().toLowerCase();
  const shown = rows.filter((row) => (!onlyChanged || row.isChanged) && `${row.name} ${row.value} ${row.text}`.toLowerCase().includes(sought));
  const columns = [
    { name: "Setting", kind: "id", of: (row) => html`<code>${breakable(row.name)}</code>` },
    { name: "Value", of: (row) => html`<span title=${row.value} class=${row.isChanged ? "changed" : ""}>${row.text}</span>` },
    { name: "Default", of: (row) => html`<span class="faint">${row.isChanged ? (row.usual === undefined ? "no default" : settingText(row.name, row.usual)) : "the same"}</span>` },
  ];
  return html`<section class="settings">
    <dl class="pairs">
      <div><dt>Checkpoint storage</dt><dd>${report.storage ? html`<code>${report.storage}</code>` : "none"}</dd></div>
      <div><dt>JobMaster</dt><dd>${report.master ? html`pid ${report.master.pid} on node <code>${report.master.node_id.slice(0, 8)}</code>` : "has ended"}</dd></div>
      ${report.savepoint && html`<div><dt>Stopped with</dt><dd><code>${report.savepoint}</code></dd></div>`}
    </dl>
    ${rows.length === 0 ? html`<${Notice}>An older version ran this job, and kept no settings.<//>` : html`
      <form class="filter" role="search" onSubmit=${(event) => event.preventDefault()}>
        <label>Search <input type="search" value=${text} onInput=${(event) => setText(event.target.value)} /></label>
        <label><input type="checkbox" checked=${onlyChanged} onChange=${(event) => setOnlyChanged(event.target.checked)} /> Only what differs from the default</label>
      </form>
      ${[...Object.keys(GROUPS), "Others"].map((title) => [title, shown.filter((row) => groupOf(row.name) === title)]).filter(([, rows]) => rows.length).map(([title, rows]) => html`<h2 key="${title} title">${title}</h2>
        <${Table} key=${title} caption=${title} columns=${columns} rows=${rows} keyOf=${(row) => row.name} />`)}
      ${shown.length === 0 && html`<p class="faint">No setting matches.</p>`}`}
  </section>`;
}

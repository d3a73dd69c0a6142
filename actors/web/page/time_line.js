// What happened to the job, in order: states with causes, JobMasters, rescales, savepoints, failures.

import { html } from "./vendor/htm-preact.js";
import { bytes, duration, moment } from "./format.js";

function entries(report) {
  const found = [];
  for (const entry of report.history) {
    if (entry.kind === "takeover") found.push({ at: entry.at, kind: "takeover", text: `Another process became the JobMaster${entry.process ? ` (pid ${entry.process.pid})` : ""}` });
    else found.push({ at: entry.at, kind: entry.to, text: `${entry.from} → ${entry.to}`, more: entry.cause });
  }
  for (const failure of report.failures) found.push({ at: failure.at, kind: "failed", text: `Attempt ${failure.attempt} failed`, more: failure.root.message });
  for (const rescale of report.rescales) {
    const changes = Object.keys(rescale.after).map((vertex) => `${vertex}: ${rescale.before[vertex]} → ${rescale.after[vertex]}`);
    found.push({ at: rescale.requested_at, kind: rescale.failure ? "failed" : "rescale", text: "Rescale", more: [changes.join(", "), rescale.failure].filter(Boolean).join("; ") });
  }
  for (const taken of report.checkpoint_history) {
    if (taken.kind !== "checkpoint") found.push({ at: taken.triggered_at, kind: taken.status, text: `${taken.kind.replaceAll("_", " ")} ${taken.checkpoint_id}: ${taken.status.replaceAll("_", " ")}`, more: `${bytes(taken.size)} in ${duration(taken.duration)}` });
  }
  return found.sort((a, b) => b.at - a.at);
}

export const TimeLine = ({ report }) => html`<ol class="timeline">${entries(report).map((entry, number) => html`
  <li key="${entry.at} ${number}" class=${entry.kind}><time>${moment(entry.at)}</time><span>${entry.text.replaceAll("_", " ")}${entry.more && html`<br /><span class="faint">${entry.more}</span>`}</span></li>`)}</ol>`;

// Events of the job, the newest first: states with causes, JobMasters, rescales, savepoints, failures.

import { html } from "./vendor/htm-preact.js";
import { bytes, duration, moment } from "./format.js";

const TOGETHER = 1; // seconds: states that follow each other so soon are one entry
const ENDS = ["finished", "failed", "cancelled"];

// Chains of states, the oldest first; each with the seconds that the job stayed in its last state.
function chains(report) {
  const steps = report.history.filter((entry) => entry.kind !== "takeover");
  const found = [];
  for (const step of steps) {
    const last = found.at(-1);
    if (last && step.at - last.until < TOGETHER && last.states.at(-1) === step.from) {
      last.states.push(step.to);
      last.until = step.at;
      if (step.cause && !last.causes.includes(step.cause)) last.causes.push(step.cause);
    } else found.push({ at: step.at, until: step.at, states: [step.from, step.to], causes: step.cause ? [step.cause] : [] });
  }
  found.forEach((chain, place) => {
    const next = found[place + 1]?.at ?? (ENDS.includes(chain.states.at(-1)) ? null : report.submitted_at + report.duration);
    chain.stayed = next === null ? null : Math.max(0, next - chain.until);
  });
  return found;
}

// The chain that a failure has caused: a cause of the chain contains the failure's message, or is a part of that message.
const ledTo = (failure, found) => found.find((chain) => Math.abs(chain.at - failure.at) < 60 && chain.causes.some((cause) => cause.includes(failure.root.message) || failure.root.message.includes(cause)));

export function entriesOf(report) {
  const states = chains(report);
  const found = [];
  for (const failure of report.failures) {
    const chain = ledTo(failure, states);
    if (chain) chain.failure = failure;
    else found.push({ at: failure.at, kind: "failed", text: `Attempt ${failure.attempt} failed`, more: failure.root.message });
  }
  for (const chain of states) {
    const last = chain.states.at(-1);
    const text = `${chain.failure ? `Attempt ${chain.failure.attempt} failed: ` : ""}${chain.states.join(" → ")}`;
    found.push({ at: chain.at, kind: chain.failure ? "failed" : last, text, stayed: chain.stayed === null ? "" : `${last} for ${duration(chain.stayed)}`, more: chain.causes.join("\n") });
  }
  for (const entry of report.history) {
    if (entry.kind === "takeover") found.push({ at: entry.at, kind: "takeover", text: `Another process became the JobMaster${entry.process ? ` (pid ${entry.process.pid})` : ""}` });
  }
  for (const rescale of report.rescales) {
    const changes = Object.keys(rescale.after).map((vertex) => `${vertex}: ${rescale.before[vertex]} → ${rescale.after[vertex]}`);
    const took = rescale.ended_at ? `took ${duration(rescale.ended_at - rescale.requested_at)}` : "";
    found.push({ at: rescale.requested_at, kind: rescale.failure ? "failed" : "rescale", text: "Rescale", stayed: took, more: [changes.join(", "), rescale.failure].filter(Boolean).join("; ") });
  }
  for (const taken of report.checkpoint_history) {
    if (taken.kind === "checkpoint") continue;
    const size = taken.size === null ? "" : `${bytes(taken.size)} in ${duration(taken.duration)}`;
    found.push({ at: taken.triggered_at, kind: taken.status, text: `${taken.kind === "sync_savepoint" ? "Last savepoint" : "Savepoint"} ${taken.checkpoint_id}: ${taken.status.replaceAll("_", " ")}`, more: [size, taken.detail].filter(Boolean).join("; ") });
  }
  return found.sort((a, b) => b.at - a.at);
}

export const TimeLine = ({ report }) => html`<ol class="timeline">${entriesOf(report).map((entry, number) => html`
  <li key="${entry.at} ${number}" class=${entry.kind}><time>${moment(entry.at)}</time><span>${entry.text}${entry.stayed && html` <span class="tag">${entry.stayed.replaceAll("_", " ")}</span>`}${entry.more && html`<br /><span class="faint cause">${entry.more}</span>`}</span></li>`)}</ol>`;

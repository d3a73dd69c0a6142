// All jobs, with a filter.

import { html, useState } from "./vendor/htm-preact.js";
import { count, duration, moment, rate, shortId } from "./format.js";
import { useNarrow } from "./media.js";
import { Empty, Notice, Status, Table } from "./parts.js";

const MOST = 500; // maximum number of jobs that are shown

// The last report of an ended job still has rates, which are not shown.
const readBy = (job) => (job.live ? job.records_in : null);

// A job whose report can't be read has a `problem` and no figures.

const COLUMNS = [
  { name: "Job", of: (job) => html`<a href="#/jobs/${encodeURIComponent(job.job_id)}">${job.name}</a><br /><span class="faint">${job.job_id}</span>`, kind: "id", by: (job) => job.name },
  { name: "State", of: (job) => html`<${Status} value=${job.status} />${job.problem && html`<br /><span class="faint">${job.problem}</span>`}` },
  { name: "Started", of: (job) => (job.problem ? "" : moment(job.submitted_at)), by: (job) => (job.problem ? null : job.submitted_at) },
  { name: "Ended", of: (job) => moment(job.ended_at), by: (job) => job.ended_at },
  { name: "Duration", kind: "number", of: (job) => duration(job.duration), by: (job) => job.duration },
  { name: "Records in", kind: "number", of: (job) => rate(readBy(job)), by: readBy },
  { name: "Last checkpoint", of: (job) => moment(job.last_checkpoint), by: (job) => job.last_checkpoint },
  { name: "Restarts", kind: "number", of: (job) => count(job.restarts), by: (job) => job.restarts },
];

// A job on a phone: two lines, then the figures with their names.
const Row = ({ job }) => html`<li>
  <div class="head"><a href="#/jobs/${encodeURIComponent(job.job_id)}">${job.name}</a><${Status} value=${job.status} /></div>
  <div class="faint" title=${job.job_id}>${shortId(job.job_id)}</div>
  ${job.problem && html`<div class="faint">${job.problem}</div>`}
  <dl>
    <div><dt>Records in</dt><dd>${rate(readBy(job))}</dd></div>
    <div><dt>Duration</dt><dd>${duration(job.duration)}</dd></div>
    ${job.ended_at && html`<div><dt>Ended</dt><dd>${moment(job.ended_at)}</dd></div>`}
    <div><dt>Last checkpoint</dt><dd>${moment(job.last_checkpoint)}</dd></div>
    <div><dt>Restarts</dt><dd>${count(job.restarts)}</dd></div>
  </dl>
</li>`;

export function JobList({ jobs, storage }) {
  const isNarrow = useNarrow();
  const [text, setText] = useState("");
  const [status, setStatus] = useState("");
  if (jobs === null) return html`<h1>Jobs</h1><${Notice}>Looking for jobs…<//>`;
  if (jobs.length === 0) {
    return html`<h1>Jobs</h1><${Empty} title="Nothing runs yet">
      <p>Start a job beside this page, and it appears here:</p>
      <pre>python job.py            # a program that calls env.submit() or env.run()
ray job submit -- python job.py</pre>
      <p>${storage ? html`No job has left a report in <code>${storage}</code> either.` : html`Jobs that ended in another cluster are shown with <code>penstock ui --storage URL</code>.`}</p>
    <//>`;
  }
  const states = [...new Set(jobs.map((job) => job.status))].sort();
  const numberOf = (state) => jobs.filter((job) => job.status === state).length;
  const wanted = text.toLowerCase();
  const shown = jobs.filter((job) => (!status || job.status === status) && (job.name.toLowerCase().includes(wanted) || job.job_id.includes(wanted)));
  return html`<h1>Jobs</h1>
    <form class="filter" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label>Name or id <input type="search" value=${text} onInput=${(event) => setText(event.target.value)} /></label>
      <label>State <select value=${status} onChange=${(event) => setStatus(event.target.value)}>
        <option value="">all</option>${states.map((each) => html`<option key=${each} value=${each}>${each.replaceAll("_", " ")} (${numberOf(each)})</option>`)}
      </select></label>
      <span class="faint" role="status">${shown.length} of ${jobs.length}</span>
    </form>
    ${isNarrow
      ? html`<ul class="jobs" aria-label="Jobs">${shown.slice(0, MOST).map((job) => html`<${Row} key=${job.job_id} job=${job} />`)}</ul>`
      : html`<${Table} caption="Jobs" columns=${COLUMNS} rows=${shown.slice(0, MOST)} keyOf=${(job) => job.job_id} />`}
    ${shown.length > MOST && html`<p class="faint">Only the newest ${MOST} jobs are shown. Filter by name to see others.</p>`}`;
}

// One job: its state, its bottleneck and its views. Receives new reports as server-sent events.

import { html, useEffect, useState } from "./vendor/htm-preact.js";
import { follow, jobPath, look } from "./api.js";
import { count, duration, moment, rate, subtaskOf, subtasksOf } from "./format.js";
import { Actions } from "./actions.js";
import { Checkpoints } from "./checkpoints.js";
import { Curves, KEPT } from "./curves.js";
import { Failures, failuresOf } from "./failures.js";
import { Graph } from "./graph.js";
import { Log } from "./log.js";
import { named } from "./named.js";
import { Nodes } from "./nodes.js";
import { Empty, Figure, Notice, Status } from "./parts.js";
import { SavedState } from "./saved_state.js";
import { Settings } from "./settings.js";
import { Subtasks } from "./subtasks.js";
import { TimeLine } from "./time_line.js";

const VIEWS = {
  graph: "Graph",
  subtasks: "Subtasks",
  nodes: "Nodes",
  checkpoints: "Checkpoints",
  failures: "Failures",
  log: "Log",
  state: "State",
  timeline: "Time line",
  configuration: "Configuration",
};

function useJob(id) {
  const [job, setJob] = useState({ report: null, age: 0, answering: true, live: true });
  const [samples, setSamples] = useState([]);
  const [error, setError] = useState(null);
  const [connected, setConnected] = useState(true);
  useEffect(() => {
    let end = () => {};
    let wanted = true;
    Promise.all([look(jobPath(id)), look(`${jobPath(id)}/samples`)]).then(
      ([seen, curves]) => {
        if (!wanted) return;
        setJob(seen);
        setSamples(curves.samples);
        if (!seen.live) return;
        end = follow(`${jobPath(id)}/events`, {
          report: setJob,
          age: (age) => setJob((before) => ({ ...before, ...age })),
          sample: (sample) => setSamples((before) => {
            const from = before.findIndex((each) => each.at >= sample.at - KEPT);
            return [...before.slice(Math.max(0, from)), sample];
          }),
        }, setConnected);
      },
      (problem) => wanted && setError(problem),
    );
    return () => {
      wanted = false;
      end();
    };
  }, [id]);
  return { ...job, samples, error, connected };
}

// A report without counters of checkpoints may have their history: after the job's end, or under a new JobMaster.
function lastCheckpoint(report) {
  const completed = report.checkpoint_history.filter((each) => each.status === "completed").map((each) => each.triggered_at + (each.duration ?? 0));
  return report.checkpoints?.latest_completed_at ?? (completed.length ? Math.max(...completed) : null);
}

// What an ended job has left, and the command that continues from it.
function End({ end }) {
  return html`<section class="end" aria-label="What is left">
    <p>Kept: ${named(end.kept ?? "nothing")}${end.deleted && html`. Deleted: ${named(end.deleted)}`}</p>
    ${end.command && html`<p>To continue: <code>${end.command}</code></p>`}
  </section>`;
}

// The name of the job in the browser's tab, as long as its page is shown.
function useTitle(name) {
  useEffect(() => {
    document.title = `${name} – Penstock`;
    return () => {
      document.title = "Penstock";
    };
  }, [name]);
}

function Figures({ report, live, newest, trend }) {
  const last = html`<${Figure} name="Last checkpoint">${moment(lastCheckpoint(report))}<//>`;
  const attempts = html`<${Figure} name="Restarts">${count(report.statistics.restarts)}<//><${Figure} name="Attempt">${count(report.statistics.attempt)}<//>`;
  if (!live) {
    return html`<dl class="figures">
      <${Figure} name="Ran for">${duration(report.duration)}<//>
      <${Figure} name="Ended">${moment(report.submitted_at + report.duration)}<//>
      ${last}${attempts}
    </dl>`;
  }
  return html`<dl class="figures">
    <${Figure} name="Running for">${duration(report.duration)}<//>
    <${Figure} name="In, all sources" title="Records per second that all sources read">${rate(newest?.records_in)}<//>
    <${Figure} name="Out, all sinks" title="Records per second that all sinks take: a record counts once for each sink that it reaches">${rate(newest?.records_out)}<//>
    <${Figure} name="Lag" title="The current time minus the lowest watermark">${duration(newest?.lag)}${trend && trend.direction !== "stays" && html` <small class="faint">${trend.text}</small>`}<//>
    ${last}${attempts}
  </dl>`;
}

export function JobView({ id, tab, rest, index, readOnly, hidesRecords }) {
  const { report, age, answering, live, lag_trend: trend, samples, error, connected } = useJob(id);
  useTitle(report?.name ?? id);
  if (error) return html`<${Empty} title="This job can't be shown"><p>${named(error.message)}</p><p><a href="#/">All jobs</a></p><//>`;
  if (report === null) return html`<${Notice}>Asking the JobMaster…<//>`;
  const newest = samples[samples.length - 1];
  const flows = live && !report.failure; // the counters of a job that restarts are those of its last attempt
  const view = VIEWS[tab] ? tab : "graph";
  return html`
    <div class="title"><h1>${report.name}</h1><${Status} value=${report.status} /><span class="faint">${report.job_id}</span></div>
    ${!connected && html`<${Notice} kind="error">The server of this page does not answer; the page shows old data.<//>`}
    ${!answering && html`<${Notice} kind="error">The JobMaster has not answered for ${Math.round(age)} s, and the page shows data of that age. If the JobMaster's process has died, another one takes the job over.<//>`}
    ${report.failure && html`<${Notice} kind="error">${named(report.failure.root.message)} <a href="#/jobs/${id}/failures">All failures</a><//>`}
    ${report.restored_from && html`<p class="faint">Restored from <code>${report.restored_from}</code></p>`}
    ${report.end && html`<${End} end=${report.end} />`}
    ${report.warnings.map((text) => html`<${Notice} key=${text} kind="warning">${named(text)}<//>`)}
    <${Figures} report=${report} live=${live} newest=${flows ? newest : undefined} trend=${trend} />
    ${report.bottleneck && flows && html`<p class="bottleneck" role="status">${named(report.bottleneck.text)} <a href=${subtasksOf(id, report.bottleneck.vertex)}>Look at ${report.bottleneck.vertex}</a></p>`}
    ${report.slow_checkpoint && flows && html`<p class="slow-checkpoint" role="status">${named(report.slow_checkpoint.text)} <a href=${subtaskOf(id, report.slow_checkpoint)}>Look at ${report.slow_checkpoint.vertex}[${report.slow_checkpoint.subtask}]</a></p>`}
    ${!readOnly && html`<${Actions} report=${report} live=${live} answering=${answering} />`}
    <nav class="tabs" aria-label="Views of the job">${Object.entries(VIEWS).map(([name, title]) => html`
      <a key=${name} href="#/jobs/${id}/${name}" aria-current=${name === view ? "page" : undefined}>${title}${name === "failures" && failuresOf(report).length ? html` <span class="tag">${failuresOf(report).length}</span>` : null}</a>`)}
    </nav>
    ${view === "graph" && html`<${Graph} report=${report} live=${flows} showsRecords=${live && !hidesRecords} /><${Curves} report=${report} samples=${samples} live=${live} />`}
    ${view === "subtasks" && html`<${Subtasks} report=${report} picked=${rest} index=${index} at=${newest?.at} live=${live} />`}
    ${view === "nodes" && html`<${Nodes} report=${report} />`}
    ${view === "checkpoints" && html`<${Checkpoints} report=${report} />`}
    ${view === "failures" && html`<${Failures} report=${report} />`}
    ${view === "log" && html`<${Log} report=${report} live=${live} />`}
    ${view === "state" && html`<${SavedState} report=${report} hidesRecords=${hidesRecords} />`}
    ${view === "timeline" && html`<${TimeLine} report=${report} />`}
    ${view === "configuration" && html`<${Settings} report=${report} />`}
  `;
}

// One job: its state, what it waits for, and the views of it. Hears from the server what is new.

import { html, useEffect, useState } from "./vendor/htm-preact.js";
import { follow, jobPath, look } from "./api.js";
import { count, duration, moment, rate } from "./format.js";
import { Actions } from "./actions.js";
import { Checkpoints } from "./checkpoints.js";
import { Curves } from "./curves.js";
import { Failures } from "./failures.js";
import { Graph } from "./graph.js";
import { Log } from "./log.js";
import { Empty, Figure, Notice, Status } from "./parts.js";
import { SavedState } from "./saved_state.js";
import { Settings } from "./settings.js";
import { Subtasks } from "./subtasks.js";
import { TimeLine } from "./time_line.js";

const KEPT = 3600; // seconds of curves

const VIEWS = {
  graph: "Graph",
  subtasks: "Subtasks",
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

// Text with `names` in backquotes, as elements.
const named = (text) => text.split("`").map((part, place) => (place % 2 ? html`<code>${part}</code>` : part));

export function JobView({ id, tab, rest, readOnly }) {
  const { report, age, answering, live, samples, error, connected } = useJob(id);
  if (error) return html`<${Empty} title="This job can't be shown"><p>${error.message}</p><p><a href="#/">All jobs</a></p><//>`;
  if (report === null) return html`<${Notice}>Asking the JobMaster…<//>`;
  const newest = samples[samples.length - 1];
  const view = VIEWS[tab] ? tab : "graph";
  return html`
    <div class="title"><h1>${report.name}</h1><${Status} value=${report.status} /><span class="faint">${report.job_id}</span></div>
    ${!connected && html`<${Notice} kind="error">The server of this page does not answer; what you see is old.<//>`}
    ${!answering && html`<${Notice} kind="error">The JobMaster has not answered for ${Math.round(age)} s. What you see is that old. If its process has died, another one takes the job over.<//>`}
    ${report.failure && html`<${Notice} kind="error">${report.failure.root.message} <a href="#/jobs/${id}/failures">All failures</a><//>`}
    ${report.warnings.map((text) => html`<${Notice} key=${text} kind="warning">${text}<//>`)}
    <dl class="figures">
      <${Figure} name="Running for">${duration(report.duration)}<//>
      <${Figure} name="Records in">${rate(live ? newest?.records_in : null)}<//>
      <${Figure} name="Records out">${rate(live ? newest?.records_out : null)}<//>
      <${Figure} name="Lag" title="The time less the lowest watermark">${duration(live ? newest?.lag : null)}<//>
      <${Figure} name="Last checkpoint">${moment(report.checkpoints?.latest_completed_at)}<//>
      <${Figure} name="Restarts">${count(report.statistics.restarts)}<//>
      <${Figure} name="Attempt">${count(report.statistics.attempt)}<//>
    </dl>
    ${report.bottleneck && live && html`<p class="bottleneck" role="status">${named(report.bottleneck.text)}</p>`}
    ${!readOnly && html`<${Actions} report=${report} live=${live} answering=${answering} />`}
    <nav class="tabs" aria-label="Views of the job">${Object.entries(VIEWS).map(([name, title]) => html`
      <a key=${name} href="#/jobs/${id}/${name}" aria-current=${name === view ? "page" : undefined}>${title}${name === "failures" && report.failures.length ? html` <span class="tag">${report.failures.length}</span>` : null}</a>`)}
    </nav>
    ${view === "graph" && html`<${Graph} report=${report} /><${Curves} samples=${samples} />`}
    ${view === "subtasks" && html`<${Subtasks} report=${report} picked=${rest} />`}
    ${view === "checkpoints" && html`<${Checkpoints} report=${report} />`}
    ${view === "failures" && html`<${Failures} report=${report} />`}
    ${view === "log" && html`<${Log} report=${report} live=${live} />`}
    ${view === "state" && html`<${SavedState} report=${report} />`}
    ${view === "timeline" && html`<${TimeLine} report=${report} />`}
    ${view === "configuration" && html`<${Settings} report=${report} />`}
  `;
}

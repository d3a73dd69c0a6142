// The page: begins the session, and shows the list of jobs or one job, as the address says.

import { html, render, useEffect, useState } from "./vendor/htm-preact.js";
import { beginSession, follow, look } from "./api.js";
import { shortId, zone } from "./format.js";
import { JobList } from "./job_list.js";
import { JobView } from "./job_view.js";
import { named } from "./named.js";
import { Empty, Notice } from "./parts.js";

// The parts of an address `#/jobs/ID/tab/rest/index`.
function route() {
  const [, first, job, tab, rest, index] = location.hash.slice(1).split("/").map(decodeURIComponent);
  return first === "jobs" && job ? { job, tab: tab || "graph", rest: rest || null, index: index ? Number(index) : null } : { job: null };
}

function useRoute() {
  const [at, set] = useState(route);
  useEffect(() => {
    const moved = () => set(route());
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  return at;
}

function Zone() {
  const { name, offset } = zone();
  return html`<span class="faint zone" title="All times of this page are in the time zone of this browser: ${name}">Times in ${name !== offset && html`<span class="wide">${name}, </span>`}${offset}</span>`;
}

function App({ info, refused }) {
  const { job, tab, rest, index } = useRoute();
  const [jobs, setJobs] = useState(null);
  const [connected, setConnected] = useState(true);
  useEffect(() => (refused ? undefined : follow("v1/events", { overview: (seen) => setJobs(seen.jobs) }, setConnected)), []);
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>Skip to the content</a>
    <header class="top">
      <a class="brand" href="#/"><img src="icon.svg" alt="" width="24" height="24" />Penstock</a>
      ${job && html`<span class="crumb" aria-hidden="true">/</span><span class="crumb">${jobs?.find((each) => each.job_id === job)?.name ?? shortId(job)}</span>`}
      <span class="space"></span>
      <${Zone} />
      ${info?.read_only && html`<span class="tag">read only</span>`}
      ${info && html`<span class="faint wide">${info.version}</span>`}
    </header>
    <main id="main" tabindex="-1">
      ${!connected && html`<${Notice} kind="error">The server of this page does not answer. Is <code>penstock ui</code> still running? The page connects again by itself.<//>`}
      ${refused
        ? html`<${Empty} title="No session"><p>${named(refused.message)}</p><p>Open the address that <code>penstock ui</code> has printed. The address works once; start <code>penstock ui</code> again for a new one.</p><//>`
        : job
          ? html`<${JobView} key=${job} id=${job} tab=${tab} rest=${rest} index=${index} readOnly=${info.read_only} hidesRecords=${info.hides_records} />`
          : html`<${JobList} jobs=${jobs} storage=${info.storage} />`}
    </main>`;
}

let info = null;
let refused = null;
try {
  await beginSession();
} catch (error) {
  refused = error;
}
try {
  info = await look("v1/info");
  refused = null; // an older session is valid, too
} catch (error) {
  refused ??= error;
}
render(html`<${App} info=${info} refused=${refused} />`, document.getElementById("app"));

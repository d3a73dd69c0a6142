// The log: follows what comes, filtered by operator and text on the server.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { jobPath, look } from "./api.js";
import { Notice } from "./parts.js";

const KEPT = 5000;
const AGAIN = 1000; // milliseconds between two questions

export function Log({ report, live }) {
  const [operator, setOperator] = useState("");
  const [text, setText] = useState("");
  const [follows, setFollows] = useState(true);
  const [lines, setLines] = useState([]);
  const [error, setError] = useState(null);
  const box = useRef(null);
  useEffect(() => {
    let wanted = true;
    let next = null;
    let timer = null;
    setLines([]);
    const ask = async () => {
      const query = new URLSearchParams({ operator, text, ...(next === null ? {} : { offset: String(next) }) });
      try {
        const page = await look(`${jobPath(report.job_id)}/log?${query}`);
        if (!wanted) return;
        setError(null);
        next = page.next;
        if (page.lines.length) setLines((before) => [...before, ...page.lines].slice(-KEPT));
      } catch (problem) {
        if (!wanted) return;
        setError(problem);
      }
      if (live && follows) timer = setTimeout(ask, AGAIN);
    };
    const first = setTimeout(ask, 200); // while somebody types
    return () => {
      wanted = false;
      clearTimeout(first);
      clearTimeout(timer);
    };
  }, [report.job_id, operator, text, follows, live]);
  useEffect(() => {
    if (follows && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines, follows]);
  const operators = report.graph.vertices.flatMap((vertex) => vertex.operators.map((each) => each.id));
  return html`<section>
    <form class="filter" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label>Operator <select value=${operator} onChange=${(event) => setOperator(event.target.value)}><option value="">all</option>${[...operators, "job-master", "ray"].map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select></label>
      <label>Text <input type="search" value=${text} onInput=${(event) => setText(event.target.value)} /></label>
      <label><input type="checkbox" checked=${follows} onChange=${(event) => setFollows(event.target.checked)} /> Follow</label>
    </form>
    ${error && html`<${Notice} kind="error">${error.message}<//>`}
    <div class="log" ref=${box} role="log" tabindex="0" aria-label="Log of ${report.name}">${lines.map((line, number) => html`<div key=${number} class="entry ${line.stream}"><span class="faint">${line.at.slice(11, 23)} ${line.vertex}${line.subtask === null ? "" : `[${line.subtask}]`}</span> ${line.text}</div>`)}
      ${lines.length === 0 && !error && html`<span class="faint">no lines yet</span>`}
    </div>
  </section>`;
}

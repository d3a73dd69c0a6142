// The log: follows new lines. The server filters by operator, subtask and text.

import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/htm-preact.js";
import { jobPath, look } from "./api.js";
import { logged } from "./format.js";
import { Notice } from "./parts.js";

const KEPT = 5000;
const AGAIN = 1000; // milliseconds between two requests
const TYPING = 200; // milliseconds without a key until a text is searched
const PAGE = 2000; // maximum lines of an answer; more lines may follow a full answer
const NEAR = 8; // pixels from the end that count as the end

const LEVEL = /^(DEBUG|INFO|WARNING|ERROR|CRITICAL)\b/;
const levelOf = (line) => LEVEL.exec(line.text)?.[1].toLowerCase() ?? (line.stream === "err" ? "error" : "other");

// Each place of the searched text is marked.
function marked(text, searched) {
  if (!searched) return text;
  const parts = text.split(new RegExp(`(${searched.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")})`, "giu"));
  return parts.map((part, place) => (place % 2 ? html`<mark>${part}</mark>` : part));
}

function Line({ line, searched }) {
  const { time } = logged(line.at);
  const owner = `${line.vertex}${line.subtask === null ? "" : `[${line.subtask}]`}`;
  return html`<div class="entry ${levelOf(line)}"><span class="faint">${time} ${owner}</span> ${marked(line.text, searched)}</div>`;
}

// Lines, with each day above its first line.
function withDays(lines, searched) {
  let day = null;
  return lines.flatMap((line) => {
    const here = logged(line.at).day;
    const head = here === day ? [] : [html`<div key="${line.number} day" class="day">${here}</div>`];
    day = here;
    return [...head, html`<${Line} key=${line.number} line=${line} searched=${searched} />`];
  });
}

// The log's lines, and new ones as long as `isAsking`. A filter searches the whole log; without one only the end is shown.
function useLines(job, { operator, subtask, text }, isAsking) {
  const [seen, setSeen] = useState({ lines: [], isRead: false, error: null });
  const read = useRef(null);
  const isFiltered = Boolean(operator || subtask || text);
  useEffect(() => {
    read.current = { next: isFiltered ? 0 : null, isNew: true, isWhole: false };
    setSeen({ lines: [], isRead: false, error: null });
  }, [job, operator, subtask, text]);
  useEffect(() => {
    const at = read.current;
    if (!isAsking && at.isWhole) return undefined;
    let wanted = true;
    const ask = async () => {
      at.isNew = false;
      const query = new URLSearchParams({ operator, subtask, text, ...(at.next === null ? {} : { offset: String(at.next) }) });
      try {
        const page = await look(`${jobPath(job)}/log?${query}`);
        if (!wanted) return;
        const first = page.next - page.lines.length; // unique in this page, but not the line's number in the log
        const lines = page.lines.map((line, place) => ({ ...line, number: first + place }));
        at.next = page.next;
        at.isWhole = lines.length < PAGE;
        setSeen((before) => (lines.length || !before.isRead || before.error ? { lines: [...before.lines, ...lines].slice(-KEPT), isRead: at.isWhole, error: null } : before));
      } catch (error) {
        if (!wanted) return;
        setSeen((before) => ({ ...before, error }));
      }
      if (isAsking || !at.isWhole) timer = setTimeout(ask, at.isWhole ? AGAIN : 0);
    };
    let timer = setTimeout(ask, at.isNew ? TYPING : 0);
    return () => {
      wanted = false;
      clearTimeout(timer);
    };
  }, [job, operator, subtask, text, isAsking]);
  return { ...seen, isFiltered };
}

export function Log({ report, live }) {
  const [operator, setOperator] = useState("");
  const [subtask, setSubtask] = useState("");
  const [text, setText] = useState("");
  const [follows, setFollows] = useState(true);
  const [isPaused, setPaused] = useState(false); // by scrolling up
  const box = useRef(null);
  const top = useRef(0);
  const isMoving = follows && !isPaused;
  const { lines, isRead, error, isFiltered } = useLines(report.job_id, { operator, subtask, text }, live && isMoving);
  const toEnd = () => {
    box.current.scrollTop = box.current.scrollHeight;
    top.current = box.current.scrollTop;
  };
  useLayoutEffect(() => {
    if (isMoving) toEnd();
  }, [lines, isMoving]);
  const scrolled = () => {
    const { scrollTop, scrollHeight, clientHeight } = box.current;
    const isNear = scrollHeight - scrollTop - clientHeight < NEAR;
    if (isNear && scrollTop > top.current) setPaused(false);
    else if (!isNear && scrollTop < top.current) setPaused(true);
    top.current = scrollTop;
  };
  // Pauses at once: new lines could undo the scroll before `scrolled` is called.
  const wheeled = ({ deltaY }) => {
    if (deltaY < 0 && box.current.scrollTop > 0) setPaused(true);
  };
  const operators = report.graph.vertices.flatMap((vertex) => vertex.operators.map((each) => each.id));
  const vertex = report.graph.vertices.find((each) => each.operators.some(({ id }) => id === operator));
  const choose = (set) => (event) => {
    set(event.target.value);
    setPaused(false);
  };
  const chooseOperator = (event) => {
    setSubtask("");
    choose(setOperator)(event);
  };
  return html`<section>
    <form class="filter" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label>Operator <select value=${operator} onChange=${chooseOperator}><option value="">all</option>${[...operators, "job-master", "ray"].map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select></label>
      ${vertex && html`<label>Subtask <select value=${subtask} onChange=${choose(setSubtask)}><option value="">all</option>${Array.from({ length: vertex.parallelism }, (_, index) => html`<option key=${index} value=${index}>${index}</option>`)}</select></label>`}
      <label>Text <input type="search" value=${text} onInput=${choose(setText)} /></label>
      ${live && html`<label><input type="checkbox" checked=${follows} onChange=${(event) => { setFollows(event.target.checked); setPaused(false); }} /> Follow</label>`}
      ${live && follows && isPaused && html`<span role="status" class="faint">Paused, because you scrolled up. <button type="button" onClick=${() => { setPaused(false); toEnd(); }}>Go to the end</button></span>`}
    </form>
    ${error && html`<${Notice} kind="error">${error.message}<//>`}
    <div class="log" ref=${box} role="log" tabindex="0" aria-label="Log of ${report.name}" onScroll=${scrolled} onWheel=${wheeled}>${withDays(lines, text)}
      ${lines.length === 0 && !error && html`<span class="faint">${!isRead ? "Reading the log…" : isFiltered ? "No line matches the filter." : live ? "There are no lines yet." : "There are no lines: logs of an ended job last as long as its cluster."}</span>`}
    </div>
  </section>`;
}

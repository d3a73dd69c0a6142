// Small pieces that all views are made of.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { duration, share } from "./format.js";

export const Status = ({ value }) => html`<span class="status ${value}">${value.replaceAll("_", " ")}</span>`;

export function Figure({ name, children, title }) {
  return html`<div class="figure" title=${title}><dt>${name}</dt><dd>${children}</dd></div>`;
}

export const Notice = ({ kind = "info", children }) => html`<p class="notice ${kind}" role=${kind === "error" ? "alert" : "status"}>${children}</p>`;

// A share of the time as a bar with its number.
export function Bar({ value, kind, label }) {
  if (value === null || value === undefined) return html`<span class="faint">–</span>`;
  const width = `${Math.min(100, Math.round(value * 100))}%`;
  return html`<span class="bar ${kind}" role="img" aria-label="${label} ${share(value)}">
    <span class="fill" style=${{ width }}></span><span class="number">${share(value)}</span>
  </span>`;
}

export function Empty({ title, children }) {
  return html`<section class="empty"><h2>${title}</h2>${children}</section>`;
}

// A name that lines may break between its words only.
export const breakable = (name) => name.split(/(?<=[._])/).map((part) => html`${part}<wbr />`);

export const Code = ({ children }) => html`<code>${children}</code>`;

// The rows in the order of a column; rows without a value are last.
function sorted(rows, columns, order) {
  const column = order && columns.find((each) => nameOf(each) === order.name);
  if (!column) return rows;
  const known = (row) => column.by(row) ?? null;
  const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b) : a - b) * (order.descends ? -1 : 1);
  return [...rows].sort((a, b) => (known(a) === null ? 1 : 0) - (known(b) === null ? 1 : 0) || (known(a) === null ? 0 : compare(known(a), known(b))));
}

const nameOf = (column) => column.key ?? column.name;

function Heading({ column, order, setOrder }) {
  if (!column.by) return html`<th scope="col" class=${column.kind ?? ""}>${column.name}</th>`;
  const isOrder = order?.name === nameOf(column);
  // Clicks change the order: the greatest first, then the least first, then the original order.
  const next = !isOrder ? { name: nameOf(column), descends: column.kind !== "id" } : order.descends === (column.kind !== "id") ? { ...order, descends: !order.descends } : null;
  return html`<th scope="col" class=${column.kind ?? ""} aria-sort=${isOrder ? (order.descends ? "descending" : "ascending") : undefined}>
    <button type="button" class="sort" onClick=${() => setOrder(next)}>${column.name}<span aria-hidden="true">${isOrder ? (order.descends ? " ▾" : " ▴") : ""}</span></button></th>`;
}

// For each row, the number of rows of its group from here on; 0 unless the row is the first of its group.
function spansOf(groups) {
  return groups.map((group, place) => {
    if (place > 0 && groups[place - 1] === group) return 0;
    const end = groups.findIndex((other, later) => later > place && other !== group);
    return (end < 0 ? groups.length : end) - place;
  });
}

// A table that keeps the element of a row as long as the row's key is the same.
//
// A column with `by` can be sorted. `page` is the maximum number of rows shown at once. `below` returns the
// content under a row, if any. Consecutive rows of one `groupOf` share the cells of columns with `ofGroup`.
export function Table({ caption, columns, rows, keyOf, groupOf, onPick, picked, below, page, turns = ["Previous", "Next"] }) {
  const [order, setOrder] = useState(null);
  const [wanted, setWanted] = useState(0);
  const pages = page ? Math.max(1, Math.ceil(rows.length / page)) : 1;
  const at = Math.min(wanted, pages - 1);
  const shown = sorted(rows, columns, order).slice(...(page ? [at * page, (at + 1) * page] : [0]));
  const spans = groupOf ? spansOf(shown.map(groupOf)) : null;
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}><table>
    <caption class="hidden">${caption}</caption>
    <thead><tr>${columns.map((column) => html`<${Heading} key=${nameOf(column)} column=${column} order=${order} setOrder=${setOrder} />`)}</tr></thead>
    <tbody>${shown.flatMap((row, number) => {
      const key = keyOf(row);
      const under = below?.(row);
      const isPicked = Boolean(picked?.(row));
      const line = html`<tr key=${key} class=${isPicked ? "picked" : ""}>${columns.map((column, place) => column.ofGroup && spans[number] === 0 ? null : html`<td key=${nameOf(column)} class=${column.kind ?? ""} rowspan=${column.ofGroup && spans[number] > 1 ? spans[number] : undefined}>${
        place === 0 && onPick ? html`<button class="link" aria-pressed=${picked ? String(isPicked) : undefined} onClick=${() => onPick(row)}>${column.of(row)}</button>` : column.of(row)
      }</td>`)}</tr>`;
      return under ? [line, html`<tr key="${key} below" class="below"><td colspan=${columns.length}>${under}</td></tr>`] : [line];
    })}</tbody>
  </table></div>
  ${pages > 1 && html`<p class="pages"><button type="button" disabled=${at === 0} onClick=${() => setWanted(at - 1)}>${turns[0]}</button> <span role="status">page ${at + 1} of ${pages}</span> <button type="button" disabled=${at === pages - 1} onClick=${() => setWanted(at + 1)}>${turns[1]}</button></p>`}`;
}

// Makes the call once, and again whenever `deps` change. The last answer stays until the next one arrives.
export function useAnswer(call, deps) {
  const [state, set] = useState({ answer: null, error: null, waits: true });
  useEffect(() => {
    let wanted = true;
    set((before) => (before.waits ? before : { ...before, waits: true }));
    call().then(
      (answer) => wanted && set({ answer, error: null, waits: false }),
      (error) => wanted && set({ answer: null, error, waits: false }),
    );
    return () => {
      wanted = false;
    };
  }, deps);
  return state;
}

// A dialog of the browser's own: it keeps the focus inside, and Escape closes it. The focus begins at the
// element with `autofocus`.
export function Dialog({ title, large, onClose, children }) {
  const ref = useRef(null);
  useEffect(() => {
    ref.current.showModal();
  }, []);
  return html`<dialog ref=${ref} class=${large ? "large" : ""} aria-labelledby="dialog-title" onClose=${onClose} onClick=${(event) => event.target === ref.current && ref.current.close()}>
    <div class="dialog"><h2 id="dialog-title">${title}</h2>${children}</div>
  </dialog>`;
}

// The seconds since `since`, a value of `Date.now()`; counts up.
export function Elapsed({ since }) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((before) => before + 1), 500);
    return () => clearInterval(timer);
  }, []);
  const seconds = Math.max(0, Math.floor((Date.now() - since) / 1000));
  return html`<span role="timer">${seconds < 60 ? `${seconds} s` : duration(seconds)}</span>`;
}

// Over plain HTTP a page beyond loopback has no clipboard. Then the text is selected, and `execCommand` copies it.
async function copied(element) {
  try {
    await navigator.clipboard.writeText(element.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(element);
    return document.execCommand("copy");
  }
}

// A command for a terminal, and a button that copies it.
export function Command({ text }) {
  const ref = useRef(null);
  const [said, say] = useState("");
  useEffect(() => say(""), [text]);
  const copy = async () => say((await copied(ref.current)) ? "Copied" : "Selected. Press Ctrl+C to copy it.");
  return html`<p class="command"><code ref=${ref}>${text}</code><span class="copy"><span role="status" class="faint">${said}</span> <button type="button" onClick=${copy}>Copy as command</button></span></p>`;
}

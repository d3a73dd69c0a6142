// Small pieces that all views are made of.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { share } from "./format.js";

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

export const Code = ({ children }) => html`<code>${children}</code>`;

// A table whose rows are the same elements as long as their keys are.
export function Table({ caption, columns, rows, keyOf, onPick, picked }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}><table>
    <caption class="hidden">${caption}</caption>
    <thead><tr>${columns.map((column) => html`<th key=${column.name} scope="col" class=${column.kind ?? ""}>${column.name}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => {
      const key = keyOf(row);
      return html`<tr key=${key} class=${picked?.(row) ? "picked" : ""}>${columns.map((column, place) => html`<td key=${column.name} class=${column.kind ?? ""}>${
        place === 0 && onPick ? html`<button class="link" onClick=${() => onPick(row)}>${column.of(row)}</button>` : column.of(row)
      }</td>`)}</tr>`;
    })}</tbody>
  </table></div>`;
}

// Asks once, and again whenever `deps` change.
export function useAnswer(call, deps) {
  const [state, set] = useState({ answer: null, error: null });
  useEffect(() => {
    let wanted = true;
    call().then(
      (answer) => wanted && set({ answer, error: null }),
      (error) => wanted && set({ answer: null, error }),
    );
    return () => {
      wanted = false;
    };
  }, deps);
  return state;
}

// A dialog of the browser's own: it keeps the focus inside, and Escape closes it.
export function Dialog({ title, onClose, children }) {
  const ref = useRef(null);
  useEffect(() => {
    ref.current.showModal();
  }, []);
  return html`<dialog ref=${ref} aria-labelledby="dialog-title" onClose=${onClose} onClick=${(event) => event.target === ref.current && ref.current.close()}>
    <div class="dialog"><h2 id="dialog-title">${title}</h2>${children}</div>
  </dialog>`;
}

export async function copy(text) {
  await navigator.clipboard.writeText(text);
}

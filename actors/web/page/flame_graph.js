// A flame graph: functions as boxes, as wide as the share of the time in which they are on the stack.

import { html, useState } from "./vendor/htm-preact.js";
import { Notice, useAnswer } from "./parts.js";
import { cut } from "./format.js";

const WIDTH = 900;
const HEIGHT = 18;
const LEAST = 2; // a box that is narrower is left out

function boxes(node, x, depth, scale, into) {
  const width = node.value * scale;
  if (width < LEAST) return into;
  into.push({ node, x, depth, width });
  let at = x;
  for (const child of node.children) {
    boxes(child, at, depth + 1, scale, into);
    at += child.value * scale;
  }
  return into;
}

export function FlameGraph({ ask }) {
  const { answer, error } = useAnswer(ask, []);
  const [top, setTop] = useState(null);
  if (error) return html`<${Notice} kind="error">${error.message}<//>`;
  if (answer === null) return html`<${Notice}>Looking at the process for three seconds…<//>`;
  const root = top ?? answer.root;
  const shown = boxes(root, 0, 0, WIDTH / Math.max(1, root.value), []);
  const depth = Math.max(...shown.map((box) => box.depth)) + 1;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Flame graph">
    ${top && html`<button onClick=${() => setTop(null)}>Show all</button>`}
    <svg class="flames" width=${WIDTH} height=${depth * HEIGHT} role="group" aria-label="${answer.root.value} stacks">${shown.map((box, number) => html`
      <g key=${number} class="flame depth${box.depth % 4}" onClick=${() => setTop(box.node)}>
        <rect x=${box.x} y=${box.depth * HEIGHT} width=${Math.max(1, box.width - 1)} height=${HEIGHT - 1} />
        <text x=${box.x + 4} y=${box.depth * HEIGHT + 13}>${box.width > 30 ? cut(box.node.name, Math.floor((box.width - 6) / 7)) : ""}</text>
        <title>${box.node.name}: ${((100 * box.node.value) / answer.root.value).toFixed(1)} % of ${answer.root.value} stacks</title>
      </g>`)}
    </svg></div>`;
}

// A text with `names` in backquotes as code. Everything else stays text, also HTML.

import { html } from "./vendor/htm-preact.js";

export const named = (text) => text.split(/`([^\s`](?:[^`\n]*[^\s`])?)`/).map((part, place) => (place % 2 ? html`<code>${part}</code>` : part));

// Text that somebody wrote, with `names` in backquotes as code. All else stays text.

import { html } from "./vendor/htm-preact.js";

export const named = (text) => text.split(/`([^\s`](?:[^`\n]*[^\s`])?)`/).map((part, place) => (place % 2 ? html`<code>${part}</code>` : part));

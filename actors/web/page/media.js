// What the browser says of its screen: as narrow as a phone's, or dark.

import { useEffect, useState } from "./vendor/htm-preact.js";

function useMedia(query) {
  const [matches, set] = useState(query.matches);
  useEffect(() => {
    const changed = () => set(query.matches);
    query.addEventListener("change", changed);
    changed(); // it may have changed since the first drawing
    return () => query.removeEventListener("change", changed);
  }, []);
  return matches;
}

const PHONE = matchMedia("(max-width: 640px)"); // as in the style sheet
const DARK = matchMedia("(prefers-color-scheme: dark)");

export const useNarrow = () => useMedia(PHONE);

// For drawings on a canvas, which do not follow the style sheet.
export const useDark = () => useMedia(DARK);

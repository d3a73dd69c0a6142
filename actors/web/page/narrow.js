// Whether the page is as narrow as on a phone.

import { useEffect, useState } from "./vendor/htm-preact.js";

const PHONE = matchMedia("(max-width: 640px)"); // as in the style sheet

export function useNarrow() {
  const [isNarrow, set] = useState(PHONE.matches);
  useEffect(() => {
    const changed = () => set(PHONE.matches);
    PHONE.addEventListener("change", changed);
    changed(); // the width may have changed since the first drawing
    return () => PHONE.removeEventListener("change", changed);
  }, []);
  return isNarrow;
}

"""The page in a real Chromium. As a package, its tests share a browser, which ends with the last of them."""

"""Event time: `watermarks`, window assigners (`windows`), and `durations`.

Values and pure calculations; nothing here reads a clock. Imports `record`, `names`,
`user_location` and `errors`.
"""

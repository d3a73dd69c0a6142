"""Event time: timestamps, watermarks and window assigners.

Values and pure calculations; nothing here looks at a clock. Imports `record` and `errors`.
"""

"""Event time: watermarks and window assigners.

`watermark_strategy`, `watermark_valve`, `windows`, `durations`: values and pure calculations; nothing here
looks at a clock. Imports `record` and `errors`.
"""

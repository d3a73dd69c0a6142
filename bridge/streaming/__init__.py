"""Structured Streaming as an unbounded source: `from_structured_streaming`.

`from_structured_streaming` runs the query and starts a failed one again. `induced_checkpoint` asks for the
checkpoint that Spark's commit waits for.

Touches Ray and Spark. May import `dataframes_in`, `transfer` and what lies below them.
"""

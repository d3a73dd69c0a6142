"""Patterns over the records of a key (Flink's CEP).

`pattern` is the description that users write. `matcher` finds its matches in ordered records; it has no
access to state or watermarks. `pattern_operator` orders the records by time, keeps the partial matches of
each key in state, and calls the user's function.
"""

"""Sinks: the two-phase commit, seen from one subtask.

`sink` is the operator, `sink_context` what a user's writer may know. What users implement is in
`runtime.operators.protocols`.
"""

"""What users write and what runs it: operators, sources, sinks, windows and the chain that drives them.

`operator` is the base of all of them, `protocols` what users implement to connect anything, `metrics` what
functions count. The rooms have one kind of operator each. An operator reaches state and time only through its
context. Imports `state`, `time`, `snapshot` and what lies below; never `graph`.
"""

"""What users write and what runs it: operators, sources, sinks, windows and the chain that drives them.

Protocols of users' connectors are in `protocols`, functions in `process_function`. An operator reaches
state and time only through its context. Imports `state`, `time`, `snapshot` and what lies below; never
`graph`.
"""

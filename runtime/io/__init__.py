"""The part of the runtime that does input and output: storages, connectors, state tables.

Files, object stores and clocks may be used here and nowhere else in the runtime. Within the runtime, only
`testing` imports this package.
"""

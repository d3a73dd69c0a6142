"""The part of the runtime that does input and output: storages, connectors, state tables.

Files, object stores and clocks may be used here and nowhere else in the runtime. Nothing else in the runtime
imports this package; `testing` loads its state backends by name.
"""

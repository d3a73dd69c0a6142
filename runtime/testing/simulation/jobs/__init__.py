"""The jobs that seeds draw: their records and operators, the graph as data, and the scenario around it.

`scenario` draws everything; `shape` becomes a real job graph; `external_system` stands behind the sinks.
Imports `cluster` and `world`.
"""

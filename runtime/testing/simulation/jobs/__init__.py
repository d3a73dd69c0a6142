"""The jobs that seeds draw: their records and operators, the graph as data, and the scenario around it.

`scenario` draws everything, with `draw_job`; `shape` becomes a real job graph; `records` has the external
system behind the sinks. Imports `cluster` and `world`.
"""

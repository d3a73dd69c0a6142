"""Operators, sources, sinks, windows, and the chain that drives them.

- `operator` is the base of all operators, which reach state and time only through their context. `source` and
  `sinks` have the interfaces of users' connectors; `metrics` has the counters of functions, and `lag`
  what sources have not read yet.
- `functions/`, `windows/`, `joins/`, `patterns/`, `ranking/`, `aggregation/`, `expression_operators`,
  `source_operator`, `sinks`, `event_time`: the kinds of operators. `user_operator` runs users' own.
  `coordinator_host` runs coordinators; `coordinators` has their base. `source_coordinator` runs the
  enumerator of a source, and `requested_splits` reads what it assigns.
- Shared: `keyed_state_requests`, `operator_state`, `timers`, `held_watermark`, `user_code/`.
- `chain` drives the operators of a subtask.

Imports `state`, `time`, `snapshot` and the packages below them; never `graph`.
"""

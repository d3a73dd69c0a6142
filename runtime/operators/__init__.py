"""Operators, sources, sinks, windows, and the chain that drives them.

- `operator` is the base of all operators, `protocols` what users implement to connect anything, `metrics`
  what functions count. An operator reaches state and time only through its context.
- `functions/`, `windows/`, `aggregation/`, `expressions/`, `sources/`, `sinks`, `event_time`: one kind of
  operator each. `user_operator` runs users' own. `coordinator_host` runs coordinators; `coordinators` has
  their base.
- Shared: `keyed_state_requests`, `operator_state`, `timers`, `held_watermark`, `user_code/`.
- `chain` drives the operators of a subtask. `running_call` tells what a stuck thread is in.

Imports `state`, `time`, `snapshot` and what lies below; never `graph`.
"""

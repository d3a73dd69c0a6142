"""Barrier handling at the input of a subtask: when a checkpoint begins there, and which channels wait for it.

Read in this order:

* `handler`: the common parts of barrier handlers, their listener, and which channels owe a barrier.
* `tracker`: at least once. `aligner`: exactly once with aligned barriers, with one channel or many.
* `unaligner`, with `unaligned_states` (what the input waits for): barriers that overtake, at once or when an
  alignment takes too long.
* `alternating`: aligned savepoints and unaligned checkpoints in one job.
* `checkpointed_input_gate`: takes barriers out of the input. One of its gates also stores what comes from
  blocked channels, so that their senders continue.
* `factory`: chooses the handler and the gate of a subtask. Other floors use only this module and the gates.

All handlers replay Flink's cases (`tests/conformance`). Imports `network` and what lies below, and never
`checkpoint`.
"""

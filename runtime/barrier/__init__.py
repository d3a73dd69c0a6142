"""Barrier handling at the input of a subtask: the start of checkpoints, and the blocking of channels.

* `handler`: base of the barrier handlers, their listener, and the count of barriers.
* `tracker`: at least once. `aligner`: exactly once with aligned barriers.
* `unaligner`, with `unaligned_states`: barriers that overtake data, at once or after a timeout.
* `alternating`: aligned snapshots, such as savepoints, and unaligned checkpoints in one job.
* `checkpointed_input_gate`: takes barriers out of the input, and may store the input of blocked channels.
* `factory`: chooses the handler and the gate of a subtask. Other floors make handlers only with it.

Tests replay Flink's cases on all handlers (`tests/conformance`). Imports `network` and lower floors, never
`checkpoint`.
"""

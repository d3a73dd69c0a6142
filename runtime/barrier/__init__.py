"""Barrier handling at the input of a subtask: when a checkpoint begins there, and which channels wait for it.

Read in this order:

* `handler`: what every barrier handler does, and the listener that it notifies.
* `barrier_count`: which channels owe the barrier of one checkpoint.
* `single_channel`, `tracker`, `aligner`: one channel; at least once; exactly once with aligned barriers.
* `unaligner`, with `unaligned_checkpoint` (facts by channel), `unaligned_states` (what the input waits for)
  and `overtaken_input` (what the states do): barriers that overtake. `aligned_with_timeout` begins aligned.
* `alternating`: aligned savepoints and unaligned checkpoints in one job.
* `checkpointed_input_gate`: takes barriers out of the input. `storing_input_gate` also stores what comes from
  blocked channels, so that their senders go on.
* `factory`: which of these a subtask gets. Other floors use this module and the two gates only.

All handlers replay Flink's cases (`tests/conformance`). Imports `network` and what lies below, and never
`checkpoint`.
"""

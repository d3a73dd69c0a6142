"""Channels between subtasks. Elements get their sequence numbers here and are put back in order here.

* Sending: `result_partition` is one edge and chooses channels. `result_subpartition` is one channel, with
  `send_queue` (size of buffers, and what waits for a credit).
* Receiving: `input_channel` is one channel, `input_gate` all channels of a subtask.
* `channel_state`: the port through which elements in flight become part of a checkpoint.
* `buffer_storage` keeps what comes from blocked channels whose senders continue, in memory and on disk.

Driven by the task's thread alone. Imports `graph` and what lies below, and never `barrier`.
"""

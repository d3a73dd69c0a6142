"""Channels between subtasks, which number their elements and restore their order on arrival.

* Sending: `result_partition` is one edge and chooses channels. `result_subpartition` is one channel, with
  `send_queue` (size of buffers, and elements that wait for a credit).
* Receiving: `input_channel` is one channel, `input_gate` all channels of a subtask.
* `channel_state`: the port through which elements in flight become part of a checkpoint.
* `buffer_storage` keeps elements of blocked channels whose senders continue, in memory and on disk.

Runs only in the task thread. Imports `graph` and the packages below it; never `barrier`.
"""

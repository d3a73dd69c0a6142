"""In-flight data of unaligned checkpoints.

* `barrier_sender`: sends barriers and captures what they overtake in the outputs.
* `channel_state_writer`: collects in-flight data and writes it beside the task.
* `channel_state_file`: the format of the file.

What is in flight in the input is captured by the barrier handlers (`runtime/barrier`). Imports `network`,
`snapshot` and what lies below.
"""

"""The barrier handlers: tracker, aligner, unaligner, alternating; and the checkpointed input gate.

Each handler decides for one subtask when a checkpoint begins and which channels are blocked. All replay
Flink's cases (`tests/conformance`). Imports `network` and what lies below; never `checkpoint`.
"""

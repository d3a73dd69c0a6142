"""Reads and writes the contents of snapshots without a job (Flink's State Processor API).

- `inspection`: describes a snapshot.
- `state_reading`, `state_writing`: turn state into values, and values into a snapshot.

`io/state_frames` makes tables of them. Imports `state`, `snapshot` and `operators`.
"""

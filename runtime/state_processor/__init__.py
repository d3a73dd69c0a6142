"""Reads and writes the contents of snapshots without a job (Flink's State Processor API).

- `inspection`: describes a snapshot.
- `states`: turns state into values, and values into a savepoint.

`io/state_frames` makes tables from these values. Imports `restore`, `operators` and lower floors.
"""

"""Keyed state in RocksDB: the backend, its cache of decoded values, its snapshots and their restore.

Only this package uses `rocksdict`, which is an optional dependency. It is imported when a subtask opens its
first database.
"""

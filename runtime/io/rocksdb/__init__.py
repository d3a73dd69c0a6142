"""Keyed state in RocksDB: the backend, its cache of decoded values, its snapshots and their restore.

Only this room knows the package `rocksdict`, which an extra of the installation brings. Imports it when a
subtask opens its first database.
"""

"""Keyed state: key groups, stable hashes, the heap backend and its incremental snapshots.

The stable hash and the assignment of key groups must never change: stored state depends on them. Imports
`snapshot` and what lies below.
"""

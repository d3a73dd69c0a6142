"""External events of a job: planned failures, and the requests of its user.

Imports `cluster` and `world`.
"""

"""Faults that strike a job from outside: planned failures, and the requests of its user.

Imports `cluster` and `world`.
"""

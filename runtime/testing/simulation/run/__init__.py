"""The course of a run: its engine, its faults and requests, and `penstock.testing.simulate`.

Imports `world` and `cluster`. Knows nothing of the jobs that the project's tests draw.
"""

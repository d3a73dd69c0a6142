"""The course of a run: its engine, its faults and requests, and `penstock.testing.simulate`.

The package imports `world` and `cluster`. It knows nothing of the jobs that the project's tests draw.
"""

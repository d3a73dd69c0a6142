"""Scenarios that are given, not drawn: back pressure, Flink's stress test, another parallelism.

Imports `jobs`.
"""

"""Spark DataFrames in and out of job graphs: the only part that may know Spark; empty in this version."""

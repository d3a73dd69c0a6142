"""What must come out of a drawn job by its input alone, and the comparison with what has come out.

Imports `jobs` and `world`.
"""

"""The implementation behind the public names of `penstock`, without Ray and Spark.

All of it except `io` is pure: single-threaded Python that receives events and calls ports.
`tests/runtime/test_purity.py` checks its imports.
"""

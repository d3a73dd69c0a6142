"""The implementation behind the public names of `penstock`; it decides, and knows neither Ray nor Spark.

All of it is pure but `io`: single-threaded Python that is given events and calls ports.
`tests/runtime/test_purity.py` checks its imports.
"""

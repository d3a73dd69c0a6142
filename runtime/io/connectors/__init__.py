"""The built-in sources and sinks. Their public names are in `penstock.runtime`.

`penstock.runtime.operators.protocols` says what a source or sink of your own needs.
"""

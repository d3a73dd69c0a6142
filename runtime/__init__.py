"""What decides, without knowing Ray or Spark: the implementation behind the public names of `penstock`.

All of it is pure but `io`: single-threaded Python that is given events and calls ports.
`tests/runtime/test_purity.py` checks its imports.
"""

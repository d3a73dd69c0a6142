"""Aggregation by key over columns: the functions, and the operators that run them.

`functions` has what users name (`Sum`, `Mean`, ...). `aggregation` reduces batches to one row a key and
merges them into the accumulators of all keys. The operators are `combiner`, `keyed_aggregate` and
`windowed_aggregate`.
"""

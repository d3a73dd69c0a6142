"""Aggregation by key over columns: the functions, and the operators that run them.

`functions` has what users name (`Sum`, `Mean`, ...), `grouping` reduces one batch to one row a key,
`aggregation` keeps the accumulators of all keys, `keyed_aggregate` and `combiner` are the operators.
"""

"""Windows: which records are kept, when results leave, and when both are deleted.

`window` folds records by windows of event time. `triggered_window` has triggers, evictors and lateness, with
assigners of any kind. Windows over columns are in `aggregation`.
"""

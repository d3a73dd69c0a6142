"""Windows over rows.

`window` folds records by windows of event time. `triggered_window` has triggers, evictors and lateness, with
assigners of any kind, and keeps its windows in `window_state`. `window_contents` has the folds of a window.
`trigger` has the base class that users extend. `triggers` has the ready-made triggers and evictors. Windows
over columns are in `aggregation`.
"""

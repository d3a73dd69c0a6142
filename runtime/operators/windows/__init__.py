"""Windows over rows.

`window` folds records by windows of event time. `triggered_window` has triggers, evictors and lateness, with
assigners of any kind, and keeps its windows in `window_state`. `window_contents` holds the folds of a window.
`trigger` is the base that users extend, `triggers` the ready-made ones. Windows over columns are in
`aggregation`.
"""

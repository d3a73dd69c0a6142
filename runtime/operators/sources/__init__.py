"""Sources: readers in the subtasks, splits, their enumerator, and event time of each split.

`source` is the operator, with `source_watermarks`. `source_coordinator` runs an enumerator in the JobMaster.
`runtime.operators.protocols` and `split_enumerator` have the interfaces that users implement.
"""

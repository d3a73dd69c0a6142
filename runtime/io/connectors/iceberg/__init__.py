"""Iceberg: a sink and a source of tables, by the library `pyiceberg` (`pip install 'penstock[iceberg]'`).

`catalogs` calls the catalog, `columns` converts types and partitions, `history` walks through snapshots.
`sink`, `writer`, `data_files` and `committer` write; `snapshots` makes the commits. `staged_rows` and
`merging` serve sinks with a key, `compaction` joins small files. `source` and `reader` read, by `scanning`.
Only these modules import `pyiceberg`, and only when a job uses them.
"""

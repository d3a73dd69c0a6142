"""Delta Lake: a sink and a source of tables, by the library `deltalake` (`pip install 'penstock[delta]'`).

`tables` opens tables and converts types. `sink`, `staging` and `committer` write; `source`, `reader` and
`changes` read. Only these modules import `deltalake`, and only when a job uses them.
"""

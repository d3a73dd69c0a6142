"""SQL databases: a sink, a source and lookups of PostgreSQL and SQLite (`pip install 'penstock[sql]'`).

`database` says what the connectors need of a database; `postgres` and `sqlite` do it. `sink`, `staging` and
`committer` write; `source`, `reader` and `lookup` read. Only `postgres` imports psycopg, and only when a job
uses it.
"""

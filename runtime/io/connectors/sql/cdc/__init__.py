"""Change data capture from PostgreSQL: a snapshot of tables, and then each change in the order of commits.

`source` has the settings, and says why it is exactly once. `split` is the position, which checkpoints hold.
`catalog` asks the database for tables, publication and slot. `stream` is the replication protocol, `pgoutput`
its messages, and `changes` makes records of them. `receiver` brings all of these together.
"""

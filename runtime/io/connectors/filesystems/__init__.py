"""File systems: local disks and object stores.

- `filesystem`: the port, also for custom file systems, and patterns such as `**/*.csv`.
- `local_files`, `object_files`: its two implementations; `filesystem_for` in `local_files` chooses one.

Imports the errors of connectors only.
"""

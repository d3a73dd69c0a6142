"""File systems: local disks and object stores.

- `filesystem`: the port, for a file system of the user's own too.
- `local_files`, `object_files`: its two implementations; `filesystem_of_url` chooses one.
- `glob_pattern`: patterns such as `**/*.csv`.

Imports the errors of connectors only.
"""

"""Checks of data that an untrusted user may have written: a snapshot, or a storage that others can write.

- `paths`: files and folders that a snapshot names, and the glob patterns that declare them.
- `data`: pickles, modules and attributes of records, and Arrow bytes.

The readers call these checks; docs/trust.md lists when each is on. Imports only `errors` and `error_text`.
"""

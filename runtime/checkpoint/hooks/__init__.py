"""Master hooks: users' code in the JobMaster that takes part in every checkpoint.

- `master_hooks`: all hooks of a job; they are triggered, restored and closed.
- `background_hook`: a hook whose calls block, one call at a time.

Imports `operators` and what lies below.
"""

"""Settings of checkpoints, restarts and whole jobs: frozen dataclasses that check their fields.

An error names the setting, the given value and the allowed values. Imports only `time`, `record`,
`names`, `redaction` and `errors`.
"""

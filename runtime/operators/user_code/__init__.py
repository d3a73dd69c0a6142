"""Everything around a call of a user's function: its record, its error, its result.

`failure` turns an exception into an error with operator, subtask and the user's line. Imports no operator.
"""

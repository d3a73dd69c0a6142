"""What surrounds a call of a user's function: which record it was, what it raised, what it returned.

`failure` turns what it raised into an error with operator, subtask and the user's line. Imports no operator.
"""

"""`OperatorChain` drives the operators of one subtask.

Where one of them fails, the error names its place (`located_operators`). What of a user's code a thread is in
right now, `running_call` reads from its stack.
"""

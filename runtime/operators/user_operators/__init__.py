"""Operators of a user's own for `stream.transform`, and their coordinators.

`user_operator` checks what passes between such an operator and the chain.
"""

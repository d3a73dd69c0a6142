"""Calls of users' functions: their records, errors and results. Imports no operator."""

"""Servers of `penstock ui` for tests, a client that can be as rude as an attacker, and other systems."""

"""Servers of `penstock ui` for tests, and a client that can be as rude as an attacker."""

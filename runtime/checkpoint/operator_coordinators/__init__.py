"""Operator coordinators in checkpoints: one with its valve (`holder`), and all of a job."""

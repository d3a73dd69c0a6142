"""A simulated job that a test drives step by step: `ScriptedJob`.

The test writes down what happens; only the order of moves is drawn. Scheduler, coordinator, log and subtasks
are the real ones. Imports `cluster`, `injection`, `world` and `simulated_run`.
"""

"""A simulated job that a test moves by hand: `ScriptedJob`.

The test writes down what happens; only the order of moves is drawn. Scheduler, coordinator, log and subtasks
are the real ones. Imports `cluster`, `injection`, `world` and `simulated_run`.
"""

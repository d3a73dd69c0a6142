"""The Spark session on the Ray cluster: choice of a Java runtime, settings, start, stop, readable errors.

`session` starts the session, and shortens Spark's errors. `spark_options` makes its settings. `security`
keeps out other users. `python_daemon` forks Python workers. `doctor` looks for Java.

Touches the environment of this process, Ray and RayDP. Imports nothing else of the bridge.
"""

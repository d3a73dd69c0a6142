"""The Spark session on the Ray cluster: finding a Java, settings, start and stop, errors in plain words.

`session` starts it, and shortens what Spark reports. `spark_options` prepares it, and `security` keeps it
from other users. `python_daemon` forks its Python workers. `doctor` checks the installed versions.

Touches the environment of this process, Ray and RayDP. Imports nothing else of the bridge.
"""

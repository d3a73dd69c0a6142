"""The Spark session on the Ray cluster: finding a Java, settings, start and stop, errors in plain words.

`session` starts it, `spark_options` and `java` prepare it, `spark_errors` shortens what Spark reports,
`doctor` and `doctor_command` check the installed versions.

Touches the environment of this process, Ray and RayDP. Imports nothing of the bridge.
"""

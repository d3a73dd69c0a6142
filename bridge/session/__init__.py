"""The Spark session on the Ray cluster: finding a Java, settings, start and stop, errors in plain words.

`session` starts it, and shortens what Spark reports. `spark_options` and `java` prepare it. `authentication`,
`secret_settings` and `session_folder` keep it from other users. `doctor` checks the installed versions.

Touches the environment of this process, Ray and RayDP. Imports nothing of the bridge.
"""

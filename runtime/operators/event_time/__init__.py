"""Where event time begins: timestamps of records, and watermarks.

`timestamps_and_watermarks` is the operator. Sources with watermarks of their own use the same parts.
"""

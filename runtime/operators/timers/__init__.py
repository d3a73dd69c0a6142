"""Timers of keys.

`timer_queue` holds the timers of one kind of time in keyed state. `timer_service` is what functions use.
`function_timers` fires them for a process function, and holds watermarks meanwhile. `reached_watermark` is
how far event time has come in an operator that has timers or windows.
"""

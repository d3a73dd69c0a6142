"""Timers of keys: `timer_queue` holds those of one kind of time, `timer_service` is what functions use."""

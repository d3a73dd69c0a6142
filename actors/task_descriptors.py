"""The descriptors of one attempt; made by pure code, so that a simulated job gets the same ones."""

from __future__ import annotations

from penstock.runtime.task.describe_tasks import describe_tasks as describe_tasks

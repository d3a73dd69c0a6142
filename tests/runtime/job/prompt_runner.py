"""`PromptRunner`: background work that a test does, except for the check of a checkpoint's place."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock.runtime.testing.manual_time import ManualAsyncRunner, ManualWork

T = TypeVar("T")


class PromptRunner(ManualAsyncRunner):
    """Checks places at once, as a storage that answers quickly: most tests are about what follows.

    Attributes:
        is_prompt: Whether it does; else that work waits like any other.
    """

    is_prompt = True

    def run(
        self,
        work: Callable[[], T],
        on_result: Callable[[T], None],
        on_error: Callable[[BaseException], None],
    ) -> ManualWork:
        if self.is_prompt and work.__name__ == "prepare_place":
            item = ManualWork(work, on_result, on_error)
            item.run()
            return item
        return super().run(work, on_result, on_error)

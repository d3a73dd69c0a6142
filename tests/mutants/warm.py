"""Quick trials: tests are imported once, and each mutant is put into a copy of that process.

Pytest collects the tests of a room with the modules as they are. A run without a mutant finds which functions
each test calls, and how long it takes. For each mutant the process is forked. The child gives the function
its faulty code and runs the tests that call this function, quick ones first, until one fails.

This works for a mutant inside a function that nothing calls before the tests run. `trial` is for the others:
constants, fields, defaults, decorators.
"""

from __future__ import annotations

import ast
import gc
import os
import pickle
import resource
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest
from mutations import Mutant
from trial import LOOK, MEMORY_LIMIT, PYTEST_OPTIONS, GeneratedOnce, Outcome, Watch, silence

#: Seconds of processor time that a test may take with a mutant: this, and many times what it takes without.
PATIENCE, TIMES = 3.0, 10
#: How a child ends in which the code of the mutant doesn't fit the function: it has other variables.
_DOES_NOT_FIT = 71
#: A module's path and the name of a function outside of functions.
Function = tuple[str, str, int]


@dataclass(slots=True)
class Test:
    """A test that was collected.

    Attributes:
        calls: The functions of the room that it calls.
        seconds: Processor time that it takes.
        kills: How many mutants it has killed.
    """

    item: pytest.Item
    calls: frozenset[Function] = frozenset()
    seconds: float = 0.0
    kills: int = 0

    def cost(self) -> float:
        """Delay of the run."""
        return (self.seconds + 0.001) / (1 + self.kills)


class Source:
    """A module's code without mutants.

    Args:
        module: Its path, from the top folder.
    """

    def __init__(self, module: str) -> None:
        self.module = module
        text = Path(module).read_text(encoding="utf-8")
        self._definitions = list(_outermost_functions(ast.parse(text)))
        self._codes = list(_codes(compile(text, module, "exec", dont_inherit=True)))

    def function_at(self, line: int) -> Function | None:
        """The outermost function with this line in its body."""
        for definition in self._definitions:
            if definition.body[0].lineno <= line <= (definition.end_lineno or 0):
                first = min(d.lineno for d in (definition, *definition.decorator_list))
                at_first = (c for c in self._codes if c.co_firstlineno == first)
                return next((self._named(c) for c in at_first if c.co_name == definition.name), None)
        return None

    def function_of(self, code: CodeType) -> Function | None:
        """The function that has this code in the unchanged module, or has it inside."""
        return self.function_at(code.co_firstlineno) or self._defined_at(code.co_firstlineno)

    def mutated(self, function: Function, source: str) -> CodeType:
        """The code of a function in the mutated module."""
        codes = _codes(compile(source, str(Path(self.module).resolve()), "exec", dont_inherit=True))
        return [code for code in codes if code.co_qualname == function[1]][function[2]]

    def _defined_at(self, line: int) -> Function | None:
        return next((self._named(code) for code in self._codes if code.co_firstlineno == line), None)

    def _named(self, code: CodeType) -> Function:
        """A property's getter and setter have one name: they are numbered."""
        same = [c for c in self._codes if c.co_qualname == code.co_qualname]
        return self.module, code.co_qualname, same.index(code)


def _outermost_functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        else:
            yield from _outermost_functions(node)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Codes of functions of a module and its classes, in their order; not those inside of functions."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & 0x2:  # it has local variables of its own: no class
                yield constant
            else:
                yield from _codes(constant)


@dataclass(slots=True)
class Calls:
    """Notes which functions of some modules are called.

    Attributes:
        sources: The modules, by the resolved path.
        seen: The functions that were called.
    """

    sources: dict[str, Source]
    seen: set[Function] = field(default_factory=set)
    _known: dict[tuple[str, CodeType], Function | None] = field(default_factory=dict)

    def start(self) -> None:
        """Begin to note, in this thread and those that it starts."""
        threading.setprofile(self._called)
        sys.setprofile(self._called)

    def stop(self) -> frozenset[Function]:
        """The functions that were called since the start."""
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
        seen = frozenset(self.seen)
        self.seen.clear()
        return seen

    def function_of(self, code: CodeType) -> Function | None:
        """The function that a code belongs to, if it is one of these modules."""
        key = (code.co_filename, code)  # codes of two files may be equal
        if key not in self._known:
            source = self.sources.get(os.path.realpath(code.co_filename))
            self._known[key] = None if source is None else source.function_of(code)
        return self._known[key]

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and (function := self.function_of(frame.f_code)) is not None:
            self.seen.add(function)


class WarmTrials:
    """A plugin of pytest that tries mutants in place of running the tests once.

    Args:
        modules: The modules of the room.
        due: The mutants to try.
        keep: Takes the outcome of each.
        tell: Takes what happens, for people.
    """

    def __init__(
        self,
        modules: Sequence[str],
        due: Sequence[Mutant],
        keep: Callable[[Mutant, Outcome], None],
        tell: Callable[[str], None],
    ) -> None:
        self._due, self._keep, self._tell = due, keep, tell
        self._sources = {module: Source(module) for module in modules}
        self._calls = Calls({os.path.realpath(module): source for module, source in self._sources.items()})
        self._early: frozenset[Function] = frozenset()
        self._functions: dict[Function, list[FunctionType]] = {}
        self._tests: list[Test] = []
        self._failed = False

    def pytest_collection(self) -> None:
        """From here on, the modules and the tests are imported."""
        self._calls.start()

    def pytest_collection_finish(self) -> None:
        """All is imported."""
        self._early = self._calls.stop()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test has said something."""
        self._failed |= report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try the mutants."""
        if session.testsfailed:
            self._tell("the tests can't be imported without a mutant")
            os._exit(1)
        self._tests = [Test(item) for item in session.items]
        gc.unfreeze()  # frozen functions would not be found
        for found in gc.get_objects():
            if isinstance(found, FunctionType):
                function = self._calls.function_of(found.__code__)
                if function is not None and found.__code__.co_qualname == function[1]:
                    self._functions.setdefault(function, []).append(found)
        if not self._functions:
            self._tell("no function of the room is found, so none can be replaced")
            os._exit(1)
        self._measure()
        gc.collect()
        gc.freeze()
        for number, mutant in enumerate(self._due, 1):
            self._try(mutant)
            if number % 50 == 0:
                self._tell(f"{number} of {len(self._due)}")
        return True

    def _measure(self) -> None:
        """Run all tests without a mutant, in a child."""

        def run() -> list[tuple[frozenset[Function], float]]:
            found = []
            for test, following in zip(self._tests, [*self._tests[1:], None], strict=True):
                began = time.process_time()
                self._calls.start()
                self._run(test, following)
                found.append((self._calls.stop(), time.process_time() - began))
                if self._failed:
                    self._tell(f"{test.item.nodeid} fails without a mutant")
                    os._exit(1)
            return found

        status, found = _in_child(run)
        if status != 0:
            os._exit(1)
        for test, (calls, seconds) in zip(self._tests, found, strict=True):
            test.calls, test.seconds = calls, seconds
        self._tell(f"{len(self._tests)} tests take {sum(test.seconds for test in self._tests):.0f} s")

    def _try(self, mutant: Mutant) -> None:
        function = self._sources[mutant.module].function_at(mutant.line)
        if function is None or function in self._early or function not in self._functions:
            return
        tests = sorted((test for test in self._tests if function in test.calls), key=Test.cost)

        def run() -> int | None:
            code = self._sources[mutant.module].mutated(function, mutant.source)
            for found in self._functions[function]:
                if len(found.__code__.co_freevars) != len(code.co_freevars):
                    os._exit(_DOES_NOT_FIT)
                found.__code__ = code
            for number, test in enumerate(tests):
                limit = PATIENCE + TIMES * test.seconds
                signal.setitimer(signal.ITIMER_PROF, limit)
                self._run(test, None)
                if self._failed:
                    return number
            return None

        status, killer = _in_child(run)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGKILL):
            outcome = Outcome.TIMED_OUT
        elif status == 0:
            outcome = Outcome.SURVIVED if killer is None else Outcome.KILLED
        elif os.WIFEXITED(status) and os.WEXITSTATUS(status) == _DOES_NOT_FIT:
            return
        else:
            self._tell(f"a trial of {mutant.module}:{mutant.line} ended with status {status}")
            return
        if killer is not None:
            tests[killer].kills += 1
        self._keep(mutant, outcome)

    def _run(self, test: Test, following: Test | None) -> None:
        """Run a test; a mutant may end it in any way."""
        self._failed = False
        try:
            test.item.config.hook.pytest_runtest_protocol(
                item=test.item, nextitem=None if following is None else following.item
            )
        except BaseException:  # what ends pytest is a failure, too
            self._failed = True


def _in_child(run: Callable[[], Any]) -> tuple[int, Any]:
    """Call something in a forked process; gives how that ended, and what it returned.

    One that stands still is killed.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 70
        try:
            os.close(reading)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(pickle.dumps(run()))
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    said, watch = b"", Watch(child)
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while True:
            if select.select([pipe], [], [], LOOK)[0]:
                piece = pipe.read(1 << 16)
                if not piece:
                    break
                said += piece
            elif watch.ended():
                break
    _, status = os.waitpid(child, 0)
    return status, pickle.loads(said) if status == 0 else None


def try_mutants(trials: WarmTrials, tests: Sequence[str]) -> bool:
    """Try mutants in a process of its own; gives whether the tests pass without a mutant."""
    child = os.fork()
    if child == 0:
        try:
            silence()
            pytest.main([*tests, *PYTEST_OPTIONS, "--capture=no"], plugins=[GeneratedOnce(), trials])
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return status == 0

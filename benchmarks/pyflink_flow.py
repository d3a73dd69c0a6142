"""The keyed sum as a process function in PyFlink, with state in RocksDB; for the Python of its environment.

Python functions run in processes of their own (`python.execution-mode: process`), which is PyFlink's default.
At most ten times a second the process function writes `<seconds> <records>` to the file that the variable
`PENSTOCK_BENCH_OUT` names. The flow does not end by itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.datastream.state import ValueStateDescriptor
from workload import add, key_of, with_key


def pair_type() -> Any:
    """A sensor and a number. A function, because globals of functions are pickled, and types can't be."""
    return Types.TUPLE([Types.STRING(), Types.LONG()])


class RunningSum(KeyedProcessFunction):  # type: ignore[misc]
    """A running sum for each sensor."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get the state, and open the file."""
        self._total: Any = runtime_context.get_state(ValueStateDescriptor("total", pair_type()))
        self._records = 0
        self._tell_at = 0.0
        self._file = open(os.environ["PENSTOCK_BENCH_OUT"], "w", buffering=1)  # noqa: SIM115

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        """Keep the next sum and emit it."""
        before = self._total.value()
        now = value if before is None else add(before, value)
        self._total.update(now)
        self._records += 1
        if self._records % 100 == 0:
            at = time.monotonic()
            if at >= self._tell_at:
                self._tell_at = at + 0.1
                self._file.write(f"{at} {self._records}\n")
        yield now


def main() -> None:
    """Build the job and run it."""
    settings = Configuration()
    for name, value in {
        "parallelism.default": "1",
        "python.execution-mode": "process",
        # With the default cache of a thousand keys, every record would fetch its state from the JVM.
        "python.state.cache-size": "10000",
        # Bundles end after a second, not by size. At each end, state goes to the JVM, one call per key.
        "python.fn-execution.bundle.size": "100000",
        "python.executable": os.environ["PENSTOCK_BENCH_PYTHON"],
        "python.client.executable": os.environ["PENSTOCK_BENCH_PYTHON"],
        "state.backend.type": "rocksdb",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.dir": os.environ["PENSTOCK_BENCH_CHECKPOINTS"],
        "rest.bind-address": "127.0.0.1",
    }.items():
        settings.set_string(name, value)
    env = StreamExecutionEnvironment.get_execution_environment(settings)
    env.add_python_file(str(Path(__file__).with_name("workload.py")))
    numbers = env.from_source(
        NumberSequenceSource(0, 1 << 60), WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()
    )
    pairs = numbers.map(with_key, pair_type())
    sums = pairs.key_by(key_of, Types.STRING()).process(RunningSum(), pair_type())
    sums._j_data_stream.sinkTo(_discarding_sink())
    env.execute("keyed-sum")


def _discarding_sink() -> Any:
    """Flink's own sink that drops everything; PyFlink does not export it."""
    from pyflink.java_gateway import get_gateway

    return get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink()


if __name__ == "__main__":
    main()

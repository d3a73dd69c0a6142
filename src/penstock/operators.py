"""Names for authors of operators: `Operator`, batches, metrics, coordinators, watermark generators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._public_names import public_names

if TYPE_CHECKING:
    from penstock.runtime.operators.coordinators import (
        CoordinatorAnswer as CoordinatorAnswer,
    )
    from penstock.runtime.operators.coordinators import EventAnswer as EventAnswer
    from penstock.runtime.operators.coordinators import MasterHook as MasterHook
    from penstock.runtime.operators.coordinators import (
        OperatorCoordinator as OperatorCoordinator,
    )
    from penstock.runtime.operators.coordinators import (
        OperatorCoordinatorContext as OperatorCoordinatorContext,
    )
    from penstock.runtime.operators.functions.async_call import AsyncCall as AsyncCall
    from penstock.runtime.operators.metrics import Counter as Counter
    from penstock.runtime.operators.metrics import Gauge as Gauge
    from penstock.runtime.operators.metrics import GaugeStatistics as GaugeStatistics
    from penstock.runtime.operators.metrics import Histogram as Histogram
    from penstock.runtime.operators.metrics import HistogramStatistics as HistogramStatistics
    from penstock.runtime.operators.metrics import OperatorStatistics as OperatorStatistics
    from penstock.runtime.operators.operator import Operator as Operator
    from penstock.runtime.operators.operator import OperatorContext as OperatorContext
    from penstock.runtime.operators.operator import TwoInputOperator as TwoInputOperator
    from penstock.runtime.record.elements import ArrowBatch as ArrowBatch
    from penstock.runtime.record.elements import Batch as Batch
    from penstock.runtime.record.elements import RowBatch as RowBatch
    from penstock.runtime.record.elements import Watermark as Watermark
    from penstock.runtime.time.watermarks import WatermarkGenerator as WatermarkGenerator
    from penstock.runtime.time.watermarks import WatermarkOutput as WatermarkOutput
else:
    __getattr__, __dir__, __all__ = public_names(__name__, __file__)

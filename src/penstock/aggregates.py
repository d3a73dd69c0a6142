"""Aggregates of columns, for `stream.aggregate(total=Sum("price"))`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._public_names import public_names

if TYPE_CHECKING:
    from penstock.runtime.operators.aggregation.column_aggregate import ColumnAggregate as ColumnAggregate
    from penstock.runtime.operators.aggregation.count_distinct import (
        ApproxCountDistinct as ApproxCountDistinct,
    )
    from penstock.runtime.operators.aggregation.count_distinct import CountDistinct as CountDistinct
    from penstock.runtime.operators.aggregation.functions import Count as Count
    from penstock.runtime.operators.aggregation.functions import First as First
    from penstock.runtime.operators.aggregation.functions import Last as Last
    from penstock.runtime.operators.aggregation.functions import Max as Max
    from penstock.runtime.operators.aggregation.functions import Mean as Mean
    from penstock.runtime.operators.aggregation.functions import Min as Min
    from penstock.runtime.operators.aggregation.functions import StdDev as StdDev
    from penstock.runtime.operators.aggregation.sums import Sum as Sum
    from penstock.runtime.operators.aggregation.vectorized_aggregate import (
        VectorizedAggregate as VectorizedAggregate,
    )
else:
    __getattr__, __dir__, __all__ = public_names(__name__, __file__)

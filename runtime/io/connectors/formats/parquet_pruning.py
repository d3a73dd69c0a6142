"""What of a Parquet file need not be read: columns that no step looks at, row groups without wanted rows.

*Row groups.* Arrow simplifies an expression under what a row group's statistics guarantee: each value lies
between the least and the greatest one, or is null. But statistics pass over NaN, and so does Arrow. `v != 3`
excludes a row group whose least and greatest value are 3, also when it holds NaN. So each column of floats
that the expression looks at is asked for separately: can the expression be true where this column is NaN? A
row has NaN in none of these columns, or in some of them. So two things must
hold for a row group that is left out. Arrow excludes it by the statistics. And NaN in none of these columns
can make the expression true.

0.0 and -0.0 are one value for statistics, and two for `is_in`. Where a column holds nothing but zeros, Arrow
takes all of them for -0.0. An expression with `is_in` reads such a row group if either zero can make it true.

It is decided when a row group is opened, and not when the splits are listed. A job that is started from a
savepoint may have another filter than before, and needs other row groups of those that are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from penstock.runtime.io.connectors.filesystems.filesystem import InputFile
from penstock.runtime.operators.expressions.expressions import columns_of_expression
from penstock.runtime.operators.expressions.needed_columns import NeededColumns


def columns_to_read(
    schema: pa.Schema, columns: tuple[str, ...] | None, needed: NeededColumns
) -> tuple[str, ...] | None:
    """The columns that are read; `None` for all.

    Args:
        schema: Of the file.
        columns: Those that the user wants; `None` for all.
        needed: What the steps behind the source look at.

    Example:
        >>> schema = pa.schema({"a": pa.int64(), "b": pa.int64(), "c": pa.int64()})
        >>> columns_to_read(schema, None, NeededColumns(("c",), (pc.field("a") > 1,)))
        ('a', 'c')
    """
    if needed.names is None:
        return columns
    there = schema.names if columns is None else list(columns)
    used = set(needed.names)
    for expression in needed.expressions:
        looked_at = columns_of_expression(expression, schema)
        if looked_at is None:
            return columns
        used.update(looked_at)
    # Whoever looks at a column that is not there, or there twice, says so by naming those that are.
    if not used or any(there.count(name) != 1 or schema.names.count(name) != 1 for name in used):
        return columns
    return tuple(name for name in there if name in used)


def may_match(handle: InputFile, row_group: int, schema: pa.Schema, wanted: pc.Expression) -> bool:
    """Whether a row group may hold wanted rows.

    Args:
        handle: The file; its place in it changes.
        row_group: Its number.
        schema: Of the file.
        wanted: An expression of the file's columns.
    """
    used = columns_of_expression(wanted, schema)
    if used is None or any(_may_be_nan(schema.field(name), schema, wanted) for name in used):
        return True
    import pyarrow.dataset as arrow_dataset  # slow to load, and only for sources with a filter

    handle.seek(0)
    fragment = arrow_dataset.ParquetFileFormat().make_fragment(handle, row_groups=[row_group])
    try:
        if fragment.split_by_row_group(wanted):
            return True
    except pa.ArrowInvalid:  # a bound of the statistics does not fit a type of the expression; a value may
        return True
    if not any(lookup in str(wanted) for lookup in ("is_in(", "index_in(")):
        return False
    statistics = fragment.row_groups[0].statistics or {}
    return any(
        statistics.get(name, {}).get("min") == 0 == statistics[name]["max"]
        and _may_be_zero(schema.field(name), schema, wanted)
        for name in used
    )


def _may_be_nan(field: pa.Field, schema: pa.Schema, wanted: pc.Expression) -> bool:
    """Whether the expression may be true for a row that has NaN in this column."""
    kind = field.type
    if kinds.is_float64(kind) or kinds.is_float32(kind):
        return _is_satisfiable(wanted, pc.field(field.name) == pa.scalar(float("nan"), kind), schema)
    return _has_floats(kind)


def _may_be_zero(field: pa.Field, schema: pa.Schema, wanted: pc.Expression) -> bool:
    """Whether the expression may be true for a row that has a zero of either sign in this column."""
    return kinds.is_floating(field.type) and any(
        _is_satisfiable(wanted, pc.field(field.name) == pa.scalar(zero, field.type), schema)
        for zero in (0.0, -0.0)
    )


def _has_floats(kind: pa.DataType) -> bool:
    if kinds.is_floating(kind):
        return True
    inner: Sequence[Any] = [kind.field(at).type for at in range(kind.num_fields)]
    if kinds.is_dictionary(kind):
        inner = [kind.value_type]
    return any(map(_has_floats, inner))


def _is_satisfiable(wanted: pc.Expression, guarantee: pc.Expression, schema: pa.Schema) -> bool:
    """Whether Arrow can't exclude `wanted` where `guarantee` is true.

    A data set leaves out the files whose guarantee excludes a filter. Its only file is never opened.
    """
    import pyarrow.dataset as arrow_dataset
    import pyarrow.fs as arrow_fs

    form, system = arrow_dataset.ParquetFileFormat(), arrow_fs.LocalFileSystem()
    file = form.make_fragment("unopened", filesystem=system, partition_expression=guarantee)
    files = arrow_dataset.FileSystemDataset([file], schema, form, system)
    try:
        return bool(list(files.get_fragments(filter=wanted)))
    except pa.ArrowException:  # a value fails, as a division by zero does: whoever reads the rows says so
        return True

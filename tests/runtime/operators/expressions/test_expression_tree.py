from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.operators.expression_tree import Call, Field, Literal, tree_of

V, W = pc.field("v"), pc.field("w", "at")


def test_calls_have_their_arguments_in_order() -> None:
    tree = tree_of((V > 3) | (pc.scalar("x") == W))
    assert tree == Call(
        "or_kleene",
        (
            Call("greater", (Field(("v",)), Literal(pa.scalar(3)))),
            Call("equal", (Literal(pa.scalar("x")), Field(("w", "at")))),
        ),
    )


def test_options_belong_to_their_call() -> None:
    tree = tree_of(~V.isin([1, None]) & V.is_null(nan_is_null=True))
    assert isinstance(tree, Call)
    inverted, is_null = tree.arguments
    assert isinstance(inverted, Call)
    (is_in,) = inverted.arguments
    assert isinstance(is_in, Call)
    assert is_in.options["value_set"].as_py() == [1, None]
    assert isinstance(is_null, Call)
    assert is_null.options["nan_is_null"].as_py() is True


def test_one_field_and_one_literal_are_trees_too() -> None:
    assert tree_of(V) == Field(("v",))
    assert tree_of(pc.scalar(True)) == Literal(pa.scalar(True))


def test_names_like_those_of_entries_are_names() -> None:
    assert tree_of(pc.field("end") == "call") == Call("equal", (Field(("end",)), Literal(pa.scalar("call"))))


def test_a_column_by_its_position_has_no_tree() -> None:
    assert tree_of(pc.field(0) > 1) is None

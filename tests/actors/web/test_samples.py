"""Curves of vertices and of the operators in their chains."""

from __future__ import annotations

from dataclasses import replace

from serving.pipeline import pipeline_report

from penstock.actors.web.samples import OperatorSample, VerticesSample
from penstock.runtime.task.statistics import OperatorRates


def test_a_sample_of_a_vertex_has_the_sums_of_each_operator_of_its_chain() -> None:
    report = pipeline_report()
    first, second, *others = report.subtasks
    assert first.rates is not None
    rates = replace(first.rates, operators={"orders": OperatorRates(10.0, 4.0)})
    filtering = (replace(first, rates=rates), replace(second, rates=rates), *others)
    sample = VerticesSample(replace(report, subtasks=filtering), 5.0).of("orders")
    assert sample is not None
    assert (sample.at, sample.records_in, sample.busy) == (5.0, 5_000.0, 0.2)
    assert sample.operators == {
        "orders": OperatorSample(20.0, 8.0),
        "orders-1": OperatorSample(),
        "orders-2": OperatorSample(),
    }


def test_the_figures_of_a_vertex_follow_those_of_the_chains_before_it() -> None:
    sample = VerticesSample(pipeline_report(), 5.0).of("total-of-each-customer")
    assert sample is not None
    assert (sample.records_in, sample.busy, sample.lag) == (4_900.0, 0.1, 0.0)
    each = OperatorSample(4_900.0, 4_900.0)
    assert sample.operators == {"total-of-each-customer": each, "total-of-each-customer-1": each}
    assert VerticesSample(pipeline_report(), 5.0).of("nowhere") is None


def test_samples_of_one_graph_share_its_names() -> None:
    first, second = (VerticesSample(pipeline_report(), at) for at in (1.0, 2.0))
    assert first._chains is second._chains

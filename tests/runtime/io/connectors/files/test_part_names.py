from __future__ import annotations

from itertools import product

from penstock.runtime.io.connectors.files.file_sink_writer import PartNames, committing_job, file_safe


def test_names_of_different_owners_are_different_and_nobody_takes_anothers_for_his_own():
    owners = list(product(["a", "a-b", "a-b-0", "a-0"], ["b", "b-0", "0", "0-0", "", "a=2D"]))
    names = [PartNames(job, operator, 0, 1, "jsonl") for job, operator in owners]
    files = [each.in_progress(0) for each in names]
    assert len(set(files)) == len(owners)
    for (job, operator), own in zip(owners, files, strict=True):
        assert PartNames(job, operator, 0, 2, "jsonl").leftovers(files) == [own]


def test_the_name_of_a_committed_file_says_which_job_committed_it():
    for job, operator in product(["a", "a-b", "a-b-0", "a-0"], ["b", "b-0", "0", "0-0", "", "a=2D"]):
        assert committing_job(PartNames(job, operator, 0, 1, "avro.gz").committed(7)) == job
        assert committing_job(PartNames(job, operator, 0, 1, "csv").in_progress(7)) is None


def test_files_of_other_programs_are_of_no_job():
    spark = "part-00000-0c29a1c1-8b3b-4d3c-9a44-1f6f0f7a1c1e-c000.snappy.parquet"
    for name in (spark, "part-r-00000", "part-0.csv", "part-job-out-0-1-0", "a.jsonl", "part-0-1-0.csv"):
        assert committing_job(name) is None


def test_only_unfinished_files_of_earlier_attempts_are_leftovers():
    now = PartNames("job", "out", 3, 5, "csv")
    names = [
        "_inprogress-job-out-0-4-0.csv",
        "_inprogress-job-out-0-4-1.parquet",
        "_inprogress-job-out-7-1-2.csv#1",
        "_inprogress-job-out-0-5-0.csv",
        "_inprogress-job-out-0-6-0.csv",
        "_inprogress-job-out-0-4-0.csv.bak/x",
        "_inprogress-job-out-0-4.csv",
        "part-job-out-0-4-0.csv",
    ]
    assert now.leftovers(names) == names[:3]


def test_numbers_go_on_behind_those_that_are_used():
    now = PartNames("job", "out", 3, 5, "csv")
    assert now.next_number([]) == 0
    used = [now.committed(4), now.in_progress(9), "part-job-out-3-4-77.csv", "part-job-out-2-5-78.csv"]
    assert now.next_number(used) == 10


def test_long_operators_keep_their_difference():
    assert file_safe("x" * 300) != file_safe("x" * 301)
    assert len(file_safe("é" * 300)) <= 96

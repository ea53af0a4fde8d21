"""Recorded answers in the formats of other tools, with the pitfalls of each."""

import gzip
import hashlib
import io
import json
import math
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.responses import ResponseTable
from app.errors import FileFormatError, InvalidInputError
from app.exchange.py_irt import write_py_irt
from app.exchange.response_files import (
    ResponseFormat,
    detect,
    files_at,
    read_answers,
    sources_of,
    write_csv,
    write_parquet,
)
from app.exchange.responses import read_responses
from app.exchange.results.recorded import (
    Choices,
    LeftOut,
    Recorded,
    Seen,
    Source,
    SourceFile,
    TrialTable,
    UnusableRowError,
)
from app.items import Outcome
from tests.exchange import traps
from tests.exchange.traps import HEADER, instance, sample, scored, stat

Part = Recorded | LeftOut | TrialTable

SAMPLES = Path(traps.SAMPLES).name


def read(*files: SourceFile, **choices: Any) -> list[Part]:
    sources, _ = sources_of(files)
    return [
        part
        for file_format, source in sources
        for part in read_answers(file_format, source, Choices(**choices), list[Seen]().append)
    ]


def records(*files: SourceFile, **choices: Any) -> list[Recorded]:
    parts = read(*files, **choices)
    assert all(isinstance(part, Recorded) for part in parts), parts
    return [part for part in parts if isinstance(part, Recorded)]


def reasons(*files: SourceFile, **choices: Any) -> list[tuple[int, str]]:
    return [(p.row, p.reason) for p in read(*files, **choices) if isinstance(p, LeftOut)]


def lines(name: str, rows: Sequence[Mapping[str, Any]]) -> SourceFile:
    return SourceFile.of_bytes(name, traps.lines(*rows))


# lm-eval


def test_two_filters_need_a_choice_that_lists_them() -> None:
    rows = [
        sample(n, filter=name, exact_match=score)
        for name, score in (("strict-match", 0.0), ("flexible-extract", 1.0))
        for n in range(2)
    ]
    file = lines(f"m/{SAMPLES}", rows)
    with pytest.raises(FileFormatError, match=r"2 filters.*'flexible-extract', 'strict-match'"):
        read(file)
    parts = read(file, filters=("flexible-extract",))
    taken = [part for part in parts if isinstance(part, Recorded)]
    assert [record.score for record in taken] == [1.0, 1.0]
    assert reasons(file, filters=("flexible-extract",)) == [
        (1, "other_filter"),
        (2, "other_filter"),
    ]
    with pytest.raises(FileFormatError, match="the filter 'strict', found: 'flexible-extract', 's"):
        read(file, filters=("strict",))


def test_rows_that_name_no_filter_come_in_the_order_of_the_filters() -> None:
    rows = [sample(n, exact_match=score) for score in (0.0, 1.0) for n in range(2)]
    for row in rows:
        row.pop("filter", None)
    file = lines(f"m/{SAMPLES}", rows)
    with pytest.raises(FileFormatError, match=r"2 filters.*: 'filter 2', 'none'"):
        read(file)
    for chosen, score in (("none", 0.0), ("filter 2", 1.0)):
        parts = read(file, filters=(chosen,))
        assert [part.score for part in parts if isinstance(part, Recorded)] == [score, score]
    named = [{"name": "strict-match"}, {"name": "flexible-extract"}]
    results = {"configs": {"gsm8k": {"filter_list": named}}}
    beside = SourceFile.of_bytes("m/results_x.json", json.dumps(results).encode())
    with pytest.raises(FileFormatError, match=r"2 filters.*'flexible-extract', 'strict-match'"):
        read(file, beside)
    parts = read(file, beside, filters=("flexible-extract",))
    assert [part.score for part in parts if isinstance(part, Recorded)] == [1.0, 1.0]


def test_rows_of_tasks_without_a_filter_are_taken_beside_any_named_one() -> None:
    file = lines("samples_arc_2024-01-01T00-00-00.jsonl", [sample(0, filter="none")])
    assert [r.score for r in records(file, filters=("filter of letters",))] == [1.0]
    with pytest.raises(FileFormatError, match="the filter 'filter 2', found: 'none'"):
        read(file, filters=("filter 2",))


def test_truths_that_an_older_version_wrote_as_texts_are_scores() -> None:
    rows = [sample(n, exact_match=mark) for n, mark in enumerate(("True", "False"))]
    unlisted = [{name: row[name] for name in row if name != "metrics"} for row in rows]
    for each in (rows, unlisted):
        assert [one.score for one in records(lines(f"m/{SAMPLES}", each))] == [1.0, 0.0]


def test_documents_that_are_numbered_anew_are_no_rows_of_another_filter() -> None:
    rows = [{**sample(n % 2), "doc_hash": f"h{n}"} for n in range(4)]
    for row in rows:
        row.pop("filter", None)
    found = records(lines(f"m/{SAMPLES}", rows))
    assert [one.item for one in found] == [f"gsm8k/h{n}" for n in range(4)]


def test_two_metrics_need_a_choice_that_lists_them() -> None:
    row = sample(metrics=["acc", "acc_norm"], acc=0.0, acc_norm=1.0)
    file = lines(f"m/{SAMPLES}", [row])
    with pytest.raises(FileFormatError, match=r":1: .* 2 metrics.*: 'acc', 'acc_norm'"):
        read(file)
    assert [r.score for r in records(file, metrics=("acc_norm",))] == [1.0]
    assert [r.score for r in records(file, metrics=("f1", "acc"))] == [0.0]
    with pytest.raises(FileFormatError, match="the metric 'f1', found: 'acc', 'acc_norm'"):
        read(file, metrics=("f1",))


def test_a_metric_that_is_better_the_lower_it_is_needs_its_range() -> None:
    config = {"metric_list": [{"metric": "mse", "higher_is_better": False}, {"metric": "acc"}]}
    beside = SourceFile.of_bytes(
        "m/results_2026-11-20T10-00-00.123456.json",
        json.dumps({"configs": {"gsm8k": config}}).encode(),
    )
    file = lines(f"m/{SAMPLES}", [sample(metrics=["mse", "acc"], mse=0.25, acc=1.0)])
    assert read(file, beside, metrics=("mse",)) == [
        LeftOut(1, "lower_is_better", "the lowest mse is the best")
    ]
    (turned,) = records(file, beside, metrics=("mse",), score_range=(1.0, 0.0))
    assert turned.score == 0.75
    assert [r.score for r in records(file, beside, metrics=("acc",))] == [1.0]
    # A perplexity's sum and number of words are no score, so nothing would count the wrong way.
    sums = lines(f"m/{SAMPLES}", [sample(metrics=["mse"], mse=[-80.5, 12])])
    assert reasons(sums, beside) == [(1, "not_a_number")]


def test_items_join_by_document_even_where_their_ids_are_shifted() -> None:
    whole = lines(f"one/{SAMPLES}", [sample(0), sample(1)])
    shifted = lines(f"two/{SAMPLES}", [sample(0, doc={"question": "q1"}, doc_hash="h1")])
    one, two = records(whole), records(shifted)
    assert two[0].item == one[1].item == "gsm8k/h1"
    assert (one[0].examinee, two[0].examinee) == ("one", "two")


def test_old_files_without_hash_filter_and_metrics_join_with_new_ones(shared_data: Path) -> None:
    (path,) = (shared_data / "lm_eval").glob("samples_metabench_gsm8k*")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    new = lines(f"m/{path.name}", rows)
    old = lines(
        f"m/{path.name}", [{k: v for k, v in row.items() if "hash" not in k} for row in rows]
    )
    assert [r.item for r in records(old)] == [r.item for r in records(new)]


def test_a_choice_lists_names_that_no_text_can_hold() -> None:
    row = {"doc_id": 0, "resps": [["x"]], "metrics": ["a", "\ud800"], "a": 1}
    with pytest.raises(FileFormatError, match=r"2 metrics.*: 'a', '\\ud800'\.") as caught:
        read(lines(f"m/{SAMPLES}", [row]))
    assert caught.value.detail.isascii()


@pytest.mark.parametrize(
    "fields", [{"resps": []}, {"filtered_resps": ["x"]}, {"filter": ["odd"], "resps": [["x"]]}]
)
def test_rows_with_odd_responses_are_still_scored(fields: dict[str, Any]) -> None:
    row = {"doc_id": 0, "metrics": ["acc"], "acc": 0.0, "doc_hash": "h"} | fields
    (found,) = records(lines(f"m/{SAMPLES}", [row]))
    assert found.score == (None if fields == {"resps": []} else 0.0)


def test_a_score_for_each_repeat_is_a_trial_for_each() -> None:
    row = sample(resps=[["a", "", "c"]], exact_match=[1.0, 0.0, 0.0])
    found = records(lines(f"m/{SAMPLES}", [row]))
    assert [(r.trial, r.score, r.outcome.value) for r in found] == [
        (1, 1.0, "scored"),
        (2, None, "error"),
        (3, 0.0, "scored"),
    ]


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ({"model_name": "org/model"}, "org/model"),
        ({"config": {"model_args": "dtype=float16,pretrained=org/model,x=1"}}, "org/model"),
        ({"results": {}}, "org/model"),
    ],
)
def test_the_model_name_comes_from_its_results_or_its_folder(
    results: dict[str, Any], expected: str
) -> None:
    beside = SourceFile.of_bytes(
        "out/org__model/results_2026-11-20T10-00-00.123456.json", json.dumps(results).encode()
    )
    elsewhere = SourceFile.of_bytes(
        "out/other/results_2026-11-20T10-00-00.123456.json", b'{"model_name": "other"}'
    )
    file = lines(f"out/org__model/{SAMPLES}", [sample()])
    (found,) = records(file, beside, elsewhere)
    assert found.examinee == expected
    (given,) = records(file, beside, examinee="mine")
    assert given.examinee == "mine"


@pytest.mark.parametrize("content", [b'{"model_name": "org/m', b"[]"])
def test_a_damaged_results_file_is_named(content: bytes) -> None:
    """Without it the samples would be another model's, under other settings."""
    beside = SourceFile.of_bytes("m/results_2026-11-20T10-00-00.123456.json", content)
    file = lines(f"m/{SAMPLES}", [sample()])
    with pytest.raises(FileFormatError, match=r"^m/results_\S+\.json: expected a JSON object"):
        records(file, beside)


def test_lines_that_cannot_be_used_are_named_with_their_reason() -> None:
    rows = [sample(n) for n in range(5)]
    rows[1]["exact_match"] = 2.0
    rows[2]["exact_match"] = "yes"
    rows[3]["exact_match"] = math.nan
    del rows[4]["exact_match"]
    content = "\n".join([*map(json.dumps, rows), "{broken", "[]", ""])
    file = SourceFile.of_bytes(f"m/{SAMPLES}", content.encode())
    assert reasons(file) == [
        (2, "score_above_range"),
        (3, "not_a_number"),
        (4, "not_scored"),
        (5, "not_scored"),
        (6, "unreadable"),
        (7, "unreadable"),
    ]


# inspect


def inspect_json(samples: Sequence[Any]) -> SourceFile:
    return SourceFile.of_bytes("log.json", traps.log(*samples))


@pytest.mark.parametrize(
    ("value", "score"),
    [
        ("C", 1.0), ("I", 0.0), ("P", 0.5), ("N", 0.0), ("yes", 1.0), ("False", 0.0),
        (True, 1.0), (0.25, 0.25), ("0.75", 0.75), (1, 1.0), (1.0000001, 1.0), (-1e-9, 0.0),
    ],
)  # fmt: skip
def test_inspect_values_become_scores(value: Any, score: float) -> None:
    (found,) = records(inspect_json([scored(value)]))
    assert (found.score, found.outcome) == (score, Outcome.SCORED)
    assert (found.examinee, found.item, found.trial) == ("openai/gpt-5", "arc/1", 1)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (math.nan, "not_scored"), (None, "not_scored"), ("NaN", "not_scored"),
        (7, "score_above_range"), (10**400, "score_out_of_range"), (-1, "score_out_of_range"),
        (math.inf, "score_out_of_range"), ("good", "not_a_number"),
    ],
)  # fmt: skip
def test_other_inspect_values_are_left_out(value: Any, reason: str) -> None:
    file = inspect_json([scored(value), scored("C", 2)])
    assert reasons(file) == [(1, reason)]


def test_no_answer_can_count_as_refused() -> None:
    file = inspect_json([scored("N")])
    assert [r.outcome for r in records(file, refused_no_answer=True)] == [Outcome.REFUSED]


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({"error": {"message": "boom"}}, Outcome.ERROR),
        ({"limit": {"type": "token", "limit": 100}}, Outcome.TRUNCATED),
        ({"output": {"choices": [{"stop_reason": "max_tokens"}]}}, Outcome.TRUNCATED),
        ({"output": {"choices": [{"stop_reason": "content_filter"}]}}, Outcome.REFUSED),
        ({"output": {"choices": [{"stop_reason": "stop"}]}, "error": None}, Outcome.SCORED),
    ],
)
def test_inspect_samples_that_failed_are_not_wrong(
    fields: dict[str, Any], outcome: Outcome
) -> None:
    (found,) = records(inspect_json([scored("I", **fields)]))
    assert found.outcome is outcome
    assert (found.score is None) == (outcome is not Outcome.SCORED)


def test_an_invalidated_sample_is_left_out() -> None:
    invalid = scored("C") | {"invalidation": {"author": "me", "reason": "broken sandbox"}}
    file = inspect_json([invalid, scored("I", 2) | {"invalidation": None}])
    assert [type(part) for part in read(file)] == [LeftOut, Recorded]
    assert reasons(file) == [(1, "invalidated")]


def test_the_newest_log_of_inspect_comes_first() -> None:
    names = [f"logs/2026-11-{day}T10-00-00-00-00_arc_x.json" for day in (20, 21)]
    logs = [SourceFile.of_bytes(name, traps.log(scored("C"))) for name in names]
    assert [source.name for _, source in sources_of(logs)[0]] == names[::-1]


def test_the_newest_log_is_told_by_the_offset_of_its_date() -> None:
    """Oldest first: 9:30, 10, 11, 12 and 13 o'clock UTC, after no date and one that never was."""
    times = ("11-30-00+02-00", "11-00-00+01-00", "11-00-00", "11-00-00-01-00", "11-00-00.5-02-00")
    dates = ["arc", "2026-13-20T11-00-00+00-00", *(f"2026-11-20T{time}" for time in times)]
    logs = [SourceFile.of_bytes(f"logs/{date}_x.json", traps.log(scored("C"))) for date in dates]
    assert [source.name for _, source in sources_of([*logs[2:], *logs[:2]])[0]] == [
        f"logs/{date}_x.json" for date in (*dates[:1:-1], *dates[:2])
    ]


def test_epochs_are_trials_and_samples_without_scores_are_left_out() -> None:
    samples = [scored("C", "a", epoch=1), scored("I", "a", epoch=2), {"id": "b", "epoch": 1}]
    found = [p for p in read(inspect_json(samples)) if isinstance(p, Recorded)]
    assert [(r.item, r.trial, r.score) for r in found] == [("arc/a", 1, 1.0), ("arc/a", 2, 0.0)]
    assert reasons(inspect_json(samples)) == [(3, "not_scored")]


def test_several_scorers_or_parts_of_one_need_a_choice() -> None:
    both = {"id": 1, "scores": {"a": {"value": "C"}, "b": {"value": {"x": 0, "y": 1}}}}
    with pytest.raises(FileFormatError, match=r"3 scorers.*: 'a', 'b\.x', 'b\.y'"):
        read(inspect_json([both]))
    assert [r.score for r in records(inspect_json([both]), scorers=("b.y",))] == [1.0]
    one = {"id": 1, "scores": {"b": {"value": {"x": 0.5}}}}
    assert [r.score for r in records(inspect_json([one]))] == [0.5]


def test_a_sample_to_which_the_chosen_scorer_gave_no_score_is_left_out() -> None:
    other = {"id": 2, "scores": {"a": {"value": "C"}}}
    log = {
        "eval": {"task": "t", "model": "m", "scorers": [{"name": "a"}, {"name": "pkg/b"}]},
        "samples": [{"id": 1, "scores": {"a": {"value": "C"}, "b": {"value": {"x": 1}}}}, other],
    }
    file = SourceFile.of_bytes("log.json", json.dumps(log).encode())
    assert reasons(file, scorers=("b.x",)) == [(2, "not_scored")]
    with pytest.raises(FileFormatError, match="sample 1: expected the scorer 'b', found: 'a', 'b"):
        read(file, scorers=("b",))
    with pytest.raises(FileFormatError, match=r"the scorer 'c', found: 'a', 'b\.x'"):
        read(file, scorers=("c",))


def archive(entries: Mapping[str, Any], **options: Any) -> SourceFile:
    return SourceFile.of_bytes("log.eval", traps.archive(entries, **options))


@pytest.mark.parametrize("zstd", [(), ("samples/1_epoch_1.json",), ("header.json",)])
def test_an_eval_archive_is_read_also_where_it_is_packed_with_zstd(zstd: tuple[str, ...]) -> None:
    entries = {
        "header.json": HEADER,
        "summaries.json": [scored("I")],
        "samples/1_epoch_1.json": scored("C"),
        "samples/2_epoch_1.json": scored(math.nan, 2),
    }
    parts = read(archive(entries, zstd=zstd))
    assert isinstance(parts[0], Recorded)
    assert (parts[0].item, parts[0].score) == ("arc/1", 1.0)
    assert parts[1] == LeftOut(2, "not_scored", "the score is NaN")


def test_a_deflated_archive_of_the_standard_library_is_read() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("header.json", json.dumps(HEADER))
        packed.writestr("samples/1_epoch_1.json", json.dumps(scored("C")))
    assert [r.score for r in records(SourceFile.of_bytes("log.eval", out.getvalue()))] == [1.0]


def test_a_crashed_run_is_read_from_its_journal() -> None:
    start = {"_journal/start.json": HEADER}
    summaries = {"_journal/summaries/1.json": [scored("C"), scored("I", 2, error="boom")]}
    found = records(archive(start | summaries))
    assert [(r.item, r.outcome.value) for r in found] == [("arc/1", "scored"), ("arc/2", "error")]
    whole = start | summaries | {"samples/3_epoch_1.json": scored("C", 3)}
    assert [r.item for r in records(archive(whole))] == ["arc/3"]


def directory_with(**fields: int) -> SourceFile:
    """Return an archive whose directory says something else about its entry, or about itself."""
    places = {"version": ("PK\x01\x02", 6), "start": ("PK\x05\x06", 18)}
    content = bytearray(traps.archive({"header.json": HEADER}))
    for name, value in fields.items():
        mark, offset = places[name]
        content[content.rindex(mark.encode()) + offset] = value
    return SourceFile.of_bytes("log.eval", bytes(content))


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (directory_with(version=123), r"expected a whole ZIP archive.*version 12\.3"),
        (directory_with(start=1), "header.json: broken entry"),
        (archive({"x.json": 1}), "header.json or _journal/start.json"),
        (archive({"header.json": [1]}), "`eval` is no object"),
        (archive({"header.json": HEADER}, broken=True), "header.json: broken entry"),
        (archive({"header.json": HEADER}, zstd=["header.json"], broken=True), "wrong checksum"),
        (SourceFile.of_bytes("log.eval", b"PK\x03\x04garbage"), "expected a whole ZIP archive"),
        (SourceFile.of_bytes("l.json", b'{"eval": {"task": "t", "model": "m"}, "sam'), "JSON"),
        (
            SourceFile.of_bytes("l.json", b'{"version": 2, "samples": [{}], "eval": {"task": 1}}'),
            "before",
        ),
    ],
)
def test_a_broken_log_is_refused_with_its_name(file: SourceFile, message: str) -> None:
    with pytest.raises(FileFormatError, match=message) as caught:
        read(file)
    assert str(caught.value).startswith(file.name)


def test_an_entry_larger_than_it_says_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.exchange.results.inspect_logs.MAX_ENTRY_BYTES", 1000)
    for zstd in ((), ("header.json",)):
        file = archive({"header.json": HEADER | {"padding": "x" * 5000}}, zstd=zstd)
        with pytest.raises(FileFormatError, match="at most 1000 bytes"):
            read(file)


# HELM


def helm(entries: Sequence[Any]) -> list[SourceFile]:
    return [SourceFile.of_bytes(*file) for file in traps.helm(*entries).items()]


def test_a_helm_run_gives_the_means_of_its_metric() -> None:
    entries = [
        instance("id1", stat("exact_match", 1.0), stat("num_prompt_tokens", 512.0)),
        instance("id1", stat("exact_match", 0.0), train_trial_index=1),
        instance("id2", stat("exact_match", None, sum=1, count=4)),
        instance("id3", stat("exact_match", 0.0, count=0)),
        instance("id1", stat("exact_match", 0.0), perturbation={"name": "robustness"}),
        instance("id4", stat("exact_match", None, sum=10**400, count=3)),
    ]
    found = [part for part in read(*helm(entries)) if isinstance(part, Recorded)]
    assert [(r.examinee, r.item, r.trial, r.score) for r in found] == [
        ("org/m", "mmlu:subject=x/id1", 1, 1.0),
        ("org/m", "mmlu:subject=x/id1", 2, 0.0),
        ("org/m", "mmlu:subject=x/id2", 1, 0.25),
    ]
    assert reasons(*helm(entries)) == [
        (4, "not_scored"),
        (5, "perturbed"),
        (6, "score_out_of_range"),
    ]


def test_blanks_around_a_name_do_not_belong_to_an_items_key() -> None:
    of_helm = helm([instance(" id1 ", stat("exact_match", 1.0))])
    of_inspect = inspect_json([scored("C", " a ")])
    found = [one.item for one in (*records(*of_helm), *records(of_inspect))]
    assert found == ["mmlu:subject=x/id1", "arc/a"]


def test_figures_under_perturbation_inside_an_entry_are_not_taken() -> None:
    worst = stat("exact_match", 0.0)
    worst["name"]["perturbation"] = {"name": "robustness", "computed_on": "worst"}
    assert [
        r.score for r in records(*helm([instance("id1", worst, stat("exact_match", 1.0))]))
    ] == [1]


def test_several_helm_metrics_need_a_choice() -> None:
    both = instance("id1", stat("exact_match", 0.0), stat("quasi_exact_match", 1.0), stat("x", 0.5))
    with pytest.raises(FileFormatError, match=r"2 metrics.*'exact_match', 'quasi_exact_match'"):
        read(*helm([both]))
    assert [r.score for r in records(*helm([both]), metrics=("quasi_exact_match",))] == [1.0]
    assert [r.score for r in records(*helm([both]), metrics=("x",))] == [0.5]


def test_a_helm_run_without_its_spec_needs_a_name() -> None:
    file, _ = helm([instance("id1", stat("exact_match", 1.0))])
    with pytest.raises(InvalidInputError, match="does not name its model"):
        read(file)
    (found,) = records(file, examinee="m")
    assert (found.examinee, found.item) == ("m", "run/id1")


def details(path: str, rows: Sequence[Mapping[str, Any]]) -> SourceFile:
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows)), stream)
    return SourceFile.of_bytes(path, stream.getvalue())


DAY = "2023-07-19T10:00:00.1"
ARCHIVE = f"board/details_org__m/{DAY}/details_harness|arc:challenge|25_{DAY}.parquet"
ASKED = {"choices": ["red", "blue"], "full_prompt": "Q: sky?\nA:", "predictions": [-2.0, -1.0]}
LIGHT = (
    "details/org/m/2025-01-01T10-00-00.1/details_leaderboard|arc|25_2025-01-01T10-00-00.1.parquet"
)
NESTED = {
    "__doc__": {"query": "Q: sky?\nA:", "choices": ["red", "blue"], "gold_index": [1]},
    "__model_response__": {"input": "Q: sky?\nA:", "text": [""], "logprobs": [-2.0, -1.0]},
    "__metric__": {"acc": 1.0, "acc_norm": 1.0},
}


@pytest.mark.parametrize(
    ("path", "fields", "sent"),
    [
        (ARCHIVE, {"example": "id1", "query": "Q: sky?\nA:", "gold": 1, "acc_norm": 1.0}, " blue"),
        (ARCHIVE, {"example": "Q: sky?\nA: ", "gold": 1, "acc": 1.0, "acc_norm": 1.0}, " blue"),
        (
            ARCHIVE.replace("details_org", "datasets--archive--details_org"),
            {"example": "Q: sky?\nA:", "gold_index": [1], "gold": [], "metrics": {"acc_norm": 1.0}},
            " blue",
        ),
        (LIGHT, NESTED, "blue"),
        (LIGHT, {name.strip("_"): part for name, part in NESTED.items()}, "blue"),
    ],
)
def test_details_of_every_format_version_give_answers_and_questions(
    path: str, fields: dict[str, Any], sent: str
) -> None:
    file = details(path, [{**ASKED, **fields} if "example" in fields else fields])
    assert detect(file) is ResponseFormat.LM_EVAL
    seen: list[Seen] = []
    choices = Choices(take_first=True)
    (found,) = read_answers(ResponseFormat.LM_EVAL, Source(file), choices, seen.append)
    assert isinstance(found, Recorded)
    assert (found.examinee, found.score) == ("org/m", 1.0)
    assert found.item.rpartition("/")[2] == hash_of_the_sky_question()
    asked = seen[0].asked()
    assert (asked.prompt, asked.options[1], asked.targets) == ("Q: sky?\nA:", sent, ("1",))


def hash_of_the_sky_question() -> str:
    text = json.dumps(["Q: sky? A:", "red", "blue"])
    return hashlib.sha256(text.encode()).hexdigest()


def test_details_have_answers_failures_and_unrepeatable_items() -> None:
    def written(n: int, answer: str | None, **fields: Any) -> dict[str, Any]:
        answers = None if answer is None else [answer]
        asked = {"example": f"{n}?", "full_prompt": f"{n}?", "predictions": answers}
        return {**asked, "gold": ["4"], "metrics": {"em": float(answer == "4")}, **fields}

    rows = [written(1, "4"), written(2, "5"), written(3, ""), written(4, None)]
    rows += [written(5, "4", example=None), written(6, "4", metrics={"em": math.nan})]
    file = details(ARCHIVE.replace("arc:challenge", "gsm8k"), rows)
    found = [part for part in read(file) if isinstance(part, Recorded)]
    assert [(one.score, one.outcome.value) for one in found] == [
        (1.0, "scored"),
        (0.0, "scored"),
        (None, "error"),
        (None, "error"),
    ]
    assert reasons(file) == [(5, "unreadable"), (6, "not_scored")]
    winogrande = details(
        ARCHIVE.replace("arc:challenge", "winogrande"),
        [{**ASKED, "example": "a _ b", "gold": 1, "acc": 1.0}],
    )
    seen: list[Seen] = []
    list(read_answers(ResponseFormat.LM_EVAL, Source(winogrande), Choices(), seen.append))
    with pytest.raises(UnusableRowError, match="has no `arguments`"):
        seen[0].asked()


@pytest.mark.parametrize("nothing", [[], [None], [""], None])
def test_a_generation_that_failed_is_an_error_of_the_item_that_others_answered(
    nothing: list[str | None] | None,
) -> None:
    doc = {"query": "2 + 2?", "choices": ["4"], "gold_index": [0]}

    def run(model: str, text: list[str | None] | None, score: float) -> SourceFile:
        response = {"input": "2 + 2?", "text": text, "logprobs": []}
        row = {"__doc__": doc, "__model_response__": response, "__metric__": {"em": score}}
        return details(LIGHT.replace("/m/", f"/{model}/"), [row])

    right, failed = records(run("right", ["4"], 1.0), run("failed", nothing, 0.0))
    assert (failed.score, failed.outcome) == (None, Outcome.ERROR)
    assert failed.item == right.item


def test_the_newest_run_counts_and_a_file_without_model_is_refused() -> None:
    row = {**ASKED, "example": "Q: sky?", "gold": 1}
    old = details(ARCHIVE, [{**row, "acc": 0.0}])
    new = details(ARCHIVE.replace("2023-07", "2023-09"), [{**row, "acc": 1.0}])
    assert [one.score for one in records(old, new)] == [1.0, 0.0]
    nobody = details(f"x/details_harness|arc|25_{DAY}.parquet", [{**row, "acc": 1}])
    with pytest.raises(InvalidInputError, match="does not name its model; give one"):
        read(nobody)
    assert [one.examinee for one in records(nobody, examinee="m")] == ["m"]


# py-irt and tables


def output_item(n: int, **fields: Any) -> dict[str, Any]:
    """Return a row as the API lists it."""
    return {
        "object": "eval.run.output_item",
        "eval_id": "eval_1",
        "datasource_item_id": n,
        "datasource_item": {"question": f"{n} + 1 = ?", "ideal": str(n + 1)},
        "status": "pass",
        "results": [{"name": "match", "passed": True, "score": 1.0}],
        "sample": {
            "model": "gpt-x",
            "output": [{"role": "assistant", "content": "3"}],
            "finish_reason": "stop",
            "error": None,
        },
        **fields,
    }


def sampled(**fields: Any) -> dict[str, Any]:
    return {"sample": {"model": "gpt-x", "finish_reason": "stop", **fields}}


def test_output_items_of_openai_evals_are_read_by_status() -> None:
    right, wrong, error = (1.0, Outcome.SCORED), (0.0, Outcome.SCORED), (None, Outcome.ERROR)
    refused, skipped = (None, Outcome.REFUSED), None
    said_no = {"role": "assistant", "content": None, "refusal": "No"}
    cases: list[tuple[dict[str, Any], tuple[float | None, Outcome] | None]] = [
        (output_item(1), right),
        (output_item(2, results=[{"name": "match", "passed": False, "score": None}]), wrong),
        (output_item(3, **sampled(error={"code": "rate_limit", "message": "slow down"})), error),
        (output_item(4, **sampled(finish_reason="length")), (None, Outcome.TRUNCATED)),
        (output_item(5, **sampled(finish_reason="content_filter")), refused),
        (output_item(6, results=[]), skipped),
        (output_item(7, results=[{"name": "match", "passed": None}]), skipped),
        (output_item(8, **sampled(output=[said_no])), refused),
        (output_item(9, **sampled(input=[{"role": "user", "content": "?"}], output=[])), error),
        (output_item(10, **sampled(error={"code": "", "message": ""}, output_text="")), error),
        (output_item(11, status="errored"), error),
        (output_item(12, sample={"model": "", "input": [], "output": [], "error": None}), right),
    ]
    rows = [row for row, _ in cases]
    file = lines("runs/a.jsonl", rows)
    assert detect(file) is ResponseFormat.OPENAI_EVALS
    found = [part for part in read(file) if isinstance(part, Recorded)]
    assert [(one.score, one.outcome) for one in found] == [end for _, end in cases if end]
    assert [one.examinee for one in found] == ["gpt-x"] * 9 + ["a"]
    assert reasons(file) == [(6, "not_scored"), (7, "not_scored")]
    page = {"object": "list", "data": rows, "first_id": "1", "has_more": False}
    for whole in (page, rows):
        same = SourceFile.of_bytes("runs/a.json", json.dumps(whole, indent=2).encode())
        assert detect(same) is ResponseFormat.OPENAI_EVALS
        assert list(read(same)) == list(read(file))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b'[{"item": {}, "sample": {}}, {"item": ', r"x.json:2: expected an entry of a JSON list"),
        (b'[{"item": {}, "sample": {}},' + b"[" * 5000, r"x.json:2: expected an entry"),
        (b'[{"item": {}, "sample": {}} {"item": 1}]', r"x.json:2: expected an entry"),
        (b'[{"item": {}, "sample": {}}, , {"item": 1}]', r"x.json:2: expected an entry"),
        (b'[{"item": {}, "sample": {}},]', r"x.json:2: expected an entry"),
    ],
)
def test_a_broken_list_is_refused_where_it_breaks(content: bytes, complaint: str) -> None:
    with pytest.raises(FileFormatError, match=complaint):
        read(SourceFile.of_bytes("x.json", content))


def test_an_entry_that_is_no_utf8_is_left_out() -> None:
    rows = [output_item(n) for n in range(3)]
    content = json.dumps(rows).encode().replace(b"0 + 1", b"\xe9 + 1")
    file = SourceFile.of_bytes("a.json", content)
    assert detect(file) is ResponseFormat.OPENAI_EVALS
    assert reasons(file) == [(1, "unreadable")]


def test_rows_of_another_kind_too_deep_or_out_of_range_are_left_out_by_row() -> None:
    deep: Any = 1
    for _ in range(200):
        deep = {"a": deep}
    good = output_item(1)
    rows = [good, {"doc_id": 1, "resps": []}, {**good, "item": deep}, output_item(4)]
    text = "\n".join(map(json.dumps, rows)).replace('"score": 1.0', '"score": 1e400')
    file = SourceFile.of_bytes("a.jsonl", text.encode())
    assert reasons(file) == [
        (1, "score_out_of_range"),
        (2, "unreadable"),
        (3, "unreadable"),
        (4, "score_out_of_range"),
    ]


def test_an_openai_item_is_the_same_in_every_run_and_data_source() -> None:
    row = output_item(1)
    other = output_item(99, datasource_item=row["datasource_item"])
    exported = {"item": row["datasource_item"], "sample": row["sample"], "results": row["results"]}
    blanks = {**row, "eval_id": " eval_1 "}  # items of a bank are named without them, too
    files = [lines("a.jsonl", [one]) for one in (row, other, exported, blanks)]
    (first,), (second,), (third,), (fourth,) = map(records, files)
    assert first.item == second.item == fourth.item
    assert first.item.partition("/")[2] == third.item.partition("/")[2]


def test_several_graders_of_openai_evals_need_a_choice() -> None:
    graders = [{"name": "match", "score": 1.0}, {"name": "judge", "score": 0.25, "passed": False}]
    file = lines("a.jsonl", [output_item(1, results=graders)])
    with pytest.raises(FileFormatError, match=r"2 graders.*'judge', 'match'"):
        read(file)
    (one,) = records(file, metrics=("judge",))
    assert one.score == 0.25


def test_an_object_that_names_an_item_twice_is_not_read() -> None:
    one = '{"subject_id": "m1", "responses": {"q1": 1}}'
    twice = '{"subject_id": "m2", "responses": {"q1": 1, "q1": 0}}'
    file = SourceFile.of_bytes("answers.jsonl", f"{one}\n{twice}".encode())
    (left,) = [part for part in read(file) if isinstance(part, LeftOut)]
    assert (left.row, left.reason) == (2, "unreadable")
    assert "the name 'q1' stands twice" in left.detail
    for n, listed in enumerate((f"[{twice}, {one}]", f"[{one}, {twice}]"), start=1):
        with pytest.raises(FileFormatError, match=rf"a\.jsonl:{n}: .*the name 'q1' stands twice"):
            list(read(SourceFile.of_bytes("a.jsonl", listed.encode())))


def test_a_file_whose_first_object_gives_a_name_twice_is_not_passed_over(tmp_path: Path) -> None:
    twice = '{"subject_id": "m2", "responses": {"q1": 1, "q1": 0}}'
    (tmp_path / "a.jsonl").write_text(f'{twice}\n{{"subject_id": "m1", "responses": {{"q1": 1}}}}')
    (tmp_path / "b.csv").write_text("model,q1\nm3,1\n")
    taken, passed_over = sources_of(files_at([tmp_path]))
    assert [kind for kind, _ in taken] == [ResponseFormat.PY_IRT, ResponseFormat.TABLE]
    assert not passed_over


def test_py_irt_lines_leave_absent_answers_missing() -> None:
    rows = [
        {"subject_id": "m1", "responses": {"q1": 1, "q2": 0}},
        {"subject_id": "m2 ", "responses": {" q2": 0.5, "q3": None}},
        {"subject_id": "m3", "responses": {}},
        {"subject_id": "", "responses": {"q1": 1}},
        {"subject_id": "m5", "responses": {" q2": 0.5, "q2": 1, "q1": 1}},
    ]
    file = lines("answers.jsonl", rows)
    found = [part for part in read(file) if isinstance(part, TrialTable)]
    assert [(p.row, p.table.examinees, p.table.items, p.table.scores.tolist()) for p in found] == [
        (1, ("m1",), ("q1", "q2"), [[1.0, 0.0]]),
        (2, ("m2",), ("q2",), [[0.5]]),
        (5, ("m5",), ("q1",), [[1.0]]),
    ]
    assert reasons(file) == [
        (2, "not_scored"),
        (3, "no_answers"),
        (4, "unreadable"),
        (5, "ambiguous_name"),
        (5, "ambiguous_name"),
    ]


def test_a_long_table_with_trials_is_one_table_for_each() -> None:
    text = (
        "subject_id,item_id,trial,response,benchmark_id\n"
        "m1,q1,1,1,arc\nm1,q1,2,0,arc\nm2,q2,1,0.5,arc\n"
    )
    first, second = read(SourceFile.of_bytes("long.csv", text.encode()))
    assert isinstance(first, TrialTable)
    assert isinstance(second, TrialTable)
    assert (first.trial, second.trial) == (1, 2)
    np.testing.assert_array_equal(first.table.scores, [[1, np.nan], [np.nan, 0.5]])
    np.testing.assert_array_equal(second.table.scores[0], [0, np.nan])


def test_a_reader_of_one_table_refuses_trials() -> None:
    with pytest.raises(FileFormatError, match="got 2 trials"):
        read_responses(b"examinee,item,trial,score\nm,q,1,1\nm,q,2,1\n")


# All formats


def test_scores_of_another_range_become_scores_between_0_and_1() -> None:
    judged = {"score_range": (1.0, 10.0)}
    row = sample(exact_match=5.5)
    assert [r.score for r in records(lines(f"m/{SAMPLES}", [row]), **judged)] == [0.5]
    graded = inspect_json([scored(10), scored("C", 2), scored("1", 3), scored(True, 4)])
    assert [r.score for r in records(graded, **judged)] == [1.0, 1.0, 0.0, 1.0]
    helm_run = helm([instance("id1", stat("exact_match", 1))])
    assert [r.score for r in records(*helm_run, **judged)] == [0.0]
    (table,) = read(SourceFile.of_bytes("j.csv", b"model,q1,q2\nm,10,\n"), **judged)
    assert isinstance(table, TrialTable)
    np.testing.assert_array_equal(table.table.scores, [[1, np.nan]])
    assert reasons(lines(f"m/{SAMPLES}", [sample(exact_match=0.5)]), **judged) == [
        (1, "score_out_of_range")
    ]


def test_where_lower_is_better_the_lowest_score_becomes_1() -> None:
    file = SourceFile.of_bytes("errors.csv", b"model,q1,q2\nm1,0,4\nm2,5,\n")
    (part,) = read(file, score_range=(5.0, 0.0))
    assert isinstance(part, TrialTable)
    np.testing.assert_allclose(part.table.scores, [[1.0, 0.2], [0.0, np.nan]])
    with pytest.raises(FileFormatError, match=r"\[0.0, 5.0\], got 6"):
        read(SourceFile.of_bytes("e.csv", b"model,q1\nm1,6\n"), score_range=(5.0, 0.0))


@pytest.mark.parametrize("score_range", [(1, 1), (math.nan, 1), (0, math.inf)])
def test_an_invalid_range_is_refused(score_range: tuple[float, float]) -> None:
    with pytest.raises(InvalidInputError, match="Expected a score range"):
        Choices(score_range=score_range)


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (lines("x", [sample()]), "lm-eval"),
        (
            SourceFile.of_bytes("x", gzip.compress(json.dumps(sample()).encode(), mtime=0)),
            "lm-eval",
        ),
        (inspect_json([]), "inspect"),
        (archive({"header.json": HEADER}), "inspect"),
        (helm([instance("id1", stat("exact_match", 1.0))])[0], "helm"),
        (lines("x", [{"subject_id": "m", "responses": {}}]), "py-irt"),
        (SourceFile.of_bytes("x", b"\xef\xbb\xbfmodel,q1\nm,1\n"), "table"),
        (SourceFile.of_bytes("x.csv.gz", gzip.compress(b"model,q1\nm,1\n", mtime=0)), "table"),
    ],
)
def test_the_content_decides_the_format(file: SourceFile, expected: str) -> None:
    assert detect(file) == expected


@pytest.mark.parametrize(
    "content",
    [
        b'{"model_name": "m", "results": {}}',
        b'[{"instance_id": 1, "stats": {"x": 1}}]',
        b"[]",
        b"{}",
    ],
)
def test_files_of_another_kind_are_not_taken_for_answers(content: bytes) -> None:
    file = SourceFile.of_bytes("x.json", content)
    assert detect(file) is None
    with pytest.raises(FileFormatError, match="in a format that is known"):
        read(file)
    with pytest.raises(FileFormatError, match="found none among 1 files"):
        read(replace(file, asked_for=False))


def test_a_first_row_that_cannot_be_read_is_told() -> None:
    file = SourceFile.of_bytes("samples_arc.jsonl", b'{"doc_id": 0, "target"')
    with pytest.raises(FileFormatError, match=r"known \(.*\); row 1: expected a JSON object: "):
        read(file)


def test_a_format_can_be_forced_and_picks_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("model,q1\nm,1\n")
    (tmp_path / "b.jsonl").write_text('{"subject_id": "m", "responses": {"q": 1}}\n')
    sources, passed_over = sources_of(files_at([tmp_path]), ResponseFormat.PY_IRT)
    assert [source.file.path.name for _, source in sources] == ["b.jsonl"]
    assert passed_over == [(tmp_path / "a.csv").as_posix()]
    forced, _ = sources_of(files_at([tmp_path / "a.csv"]), ResponseFormat.PY_IRT)
    assert [file_format.value for file_format, _ in forced] == ["py-irt"]


def test_results_of_lm_eval_without_its_samples_say_how_to_get_them() -> None:
    file = SourceFile.of_bytes("m/results_2026-11-20T10-00-00.json", b'{"results": {}}')
    with pytest.raises(FileFormatError, match=r"none among 1 files\. With --log_samples"):
        sources_of([file])


def test_a_folder_without_a_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="there is no file in this folder"):
        files_at([tmp_path])


def test_a_file_name_that_is_no_text_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"sc\xffres.csv")
    path.write_text("model,q1\nm,1\n")
    (file,) = files_at([path])
    assert file.path.name == "sc?res.csv"
    assert detect(file) == "table"


def test_a_file_given_by_name_finds_the_results_beside_it(tmp_path: Path) -> None:
    (tmp_path / SAMPLES).write_text(json.dumps(sample()))
    (tmp_path / "results_2026-11-20T10-00-00.123456.json").write_text('{"model_name": "org/m"}')
    (found,) = records(*files_at([tmp_path / SAMPLES]))
    assert found.examinee == "org/m"


def test_a_file_above_the_cap_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.exchange.results.recorded.MAX_TEXT_BYTES", 1000)
    file = lines("x.jsonl", [{"subject_id": "m", "responses": {f"q{n}": 1 for n in range(200)}}])
    with pytest.raises(FileFormatError, match="at most 1000 bytes"):
        read(file)


TABLES = st.builds(
    lambda rows, width: ResponseTable(
        tuple(f"m{i}" for i in range(len(rows))),
        tuple(f"q,{j}" for j in range(width)),
        np.array([row[:width] for row in rows]).reshape(len(rows), width),
    ),
    st.lists(
        st.lists(st.sampled_from([0.0, 1.0, 0.1, math.nan]), min_size=4, max_size=4),
        min_size=1,
        max_size=5,
    ),
    st.integers(1, 4),
).filter(lambda table: table.n_answers > 0)


@given(TABLES)
def test_a_written_table_reads_back_exactly(table: ResponseTable) -> None:
    for content in (b"".join(write_csv(table)), write_parquet(table)):
        again = read_responses(content)
        assert (again.examinees, again.items) == (table.examinees, table.items)
        np.testing.assert_array_equal(again.scores, table.scores)


def test_py_irt_lines_are_written_for_right_and_wrong_only() -> None:
    scores = np.array([[1.0, math.nan], [0.0, 1.0]])
    table = ResponseTable(("m1", "m2"), ("q1", "q2"), scores)
    written = b"".join(write_py_irt(table))
    assert [json.loads(line) for line in written.splitlines()] == [
        {"subject_id": "m1", "responses": {"q1": 1}},
        {"subject_id": "m2", "responses": {"q1": 0, "q2": 1}},
    ]
    partial = ResponseTable(("m1",), ("q1",), np.array([[0.5]]))
    with pytest.raises(InvalidInputError, match=r"'m1' has 0\.5 on 'q1'"):
        write_py_irt(partial)

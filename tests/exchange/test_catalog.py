"""Catalogue entries: their content, and how they join questions and parameters."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from pydantic import JsonValue
from scipy.stats import spearmanr

from app.engine.bank import IntArray
from app.errors import InvalidInputError, UnknownNameError
from app.exchange.catalog.agents import read_agents
from app.exchange.catalog.build import (
    GivenFile,
    build_bank,
    check,
    git_blob,
    order_of,
    rows_of_parameters,
)
from app.exchange.catalog.entry import (
    AgentsEntry,
    Entry,
    Responses,
    Source,
    pick,
    read_catalogue,
    read_entry,
)
from app.exchange.catalog.rows import Template
from app.exchange.parameters import read_parameters

CATALOGUE = read_catalogue()


def of_questions(entry: Entry | AgentsEntry) -> Entry:
    assert isinstance(entry, Entry)
    return entry


GSM8K, ARC, HELLASWAG, WINOGRANDE = (
    of_questions(CATALOGUE[name].entry)
    for name in ("gsm8k", "arc_challenge", "hellaswag", "winogrande")
)
ENTRY = """
name = "small"
title = "Small"
licence = "MIT"
questions = {split = "test", rows = 8, files = [{file = "test.jsonl"}]}
parameters = {items = 6, files = [{file = "parameters.csv"}]}
join = {name = "X{place}", order = "shuffled", seed = 42}
item = {prompt = "{q}", target = "{a|after:=|strip}"}
few_shot = {number = 2, files = [{file = "train.jsonl"}]}
asked = {mode = "generate", shots = 2, scorer = "exact", source = "made up"}
"""
ROWS = [{"q": f"What is {n} + {n}?", "a": f"{n} + {n} = {2 * n}"} for n in range(8)]
PARAMETERS = "X,a1,d,g,u\n" + "".join(f"X{n},1.5,{n / 4},0,1\n" for n in range(1, 7))


def small(**changes: str) -> Entry:
    text = ENTRY
    for old, new in changes.items():
        text = text.replace(old, new)
    return of_questions(read_entry(text.encode(), "small.toml"))


def lines(rows: list[dict[str, Any]], name: str = "test.jsonl") -> GivenFile:
    return GivenFile(name, "".join(json.dumps(row) + "\n" for row in rows).encode())


def table(text: str = PARAMETERS) -> GivenFile:
    return GivenFile("parameters.csv", text.encode())


class TestOrder:
    def test_winogrande_begins_as_the_leaderboards_own_record(self) -> None:
        beginning = [187, 719, 618, 35, 404, 462, 1033, 540, 1179, 2, 66, 587]
        assert order_of(WINOGRANDE.join, WINOGRANDE.questions.rows)[:12] == beginning

    def test_the_second_row_of_arc_is_number_1041(self) -> None:
        assert order_of(ARC.join, ARC.questions.rows)[1040] == 1

    def test_recorded_gsm8k_answers_are_to_the_rows_that_the_order_says(
        self, shared_data: Path
    ) -> None:
        rows = (shared_data / "real/gsm8k_test.jsonl").read_text().splitlines()
        place_of = {json.loads(row)["question"]: place for place, row in enumerate(rows)}
        order = order_of(GSM8K.join, len(rows))
        (recorded,) = (shared_data / "lm_eval").glob("*gsm8k*")
        docs = [json.loads(line)["doc"] for line in recorded.read_text().splitlines()]
        found = {doc["metabench_idx"]: place_of[doc["question"]] for doc in docs}
        assert len(found) == 12
        assert found == {index: order[index - 1] for index in found}

    def test_difficulty_goes_with_the_number_of_solution_steps(self, shared_data: Path) -> None:
        texts = (shared_data / "real/gsm8k_test.jsonl").read_text().splitlines()
        steps = np.array([json.loads(text)["answer"].count("\n") for text in texts])
        parameters = shared_data / "real/gsm8k_irt_item_parameters_combined.csv"
        bank = read_parameters(parameters.read_bytes())
        row_of = rows_of_parameters(GSM8K.join, bank.item_ids, len(texts))
        rows = np.array([row_of[name] for name in bank.item_ids])[bank.a > 0]

        def rho(rows: IntArray) -> float:
            return float(spearmanr(bank.b[bank.a > 0], steps[rows]).statistic)

        assert rho(rows) == pytest.approx(0.47, abs=0.01)
        order = np.array(order_of(GSM8K.join, len(texts)))
        places = np.argsort(order)[rows]
        for wrong in (places, order[places - 1], order[(places + 1) % len(order)]):
            assert abs(rho(wrong)) < 0.08


class TestEntry:
    def test_eight_banks_are_included(self) -> None:
        questions = {"gsm8k", "arc_challenge", "hellaswag", "winogrande"}
        agents = {"swebench-verified", "swebench-pro", "terminal-bench-2", "gso"}
        assert set(CATALOGUE) == questions | agents
        assert not any(listed.own for listed in CATALOGUE.values())

    def test_downloads_have_a_hash_or_a_revision(self) -> None:
        for listed in CATALOGUE.values():
            for name, group, _ in listed.entry.groups():
                for source in group.files:
                    if name == "responses":
                        assert str(source.revision) in str(source.address)
                    elif source.file is None:
                        assert source.git_blob or source.sha256

    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            ('name = "small"', 'name = "../x"', "/name"),
            ("rows = 8", 'rows = "8"', "/questions/rows"),
            ('file = "test.jsonl"', 'file = "a/../../test.jsonl"', "stays where it begins"),
            ('file = "test.jsonl"', 'url = "http://data.example/t", sha256 = "' + "0" * 64 + '"',
             "https"),
            ('file = "test.jsonl"', 'url = "https://data.example/t"', "needs a hash"),
            ('file = "test.jsonl"', 'url = "https://me:pw@data.example/t"', "without a user"),
            (", seed = 42", "", "seed"),
            ("|strip", "|shout", "one of the filters"),
            ('mode = "generate"', 'mode = "loglikelihood"', "item has no choices"),
            ("licence", "license", "/licence: Field required"),
            ('file = "test.jsonl"', 'github = "a/b", path = "t"', "come together"),
            ("[", "[[", "expected TOML"),
        ],
    )  # fmt: skip
    def test_a_faulty_entry_is_one_sentence_with_the_place(
        self, old: str, new: str, said: str
    ) -> None:
        with pytest.raises(InvalidInputError, match=r"^small\.toml") as fault:
            small(**{old: new})
        assert said in fault.value.detail
        assert "\n" not in fault.value.detail

    def test_own_entries_come_before_included_ones(self, tmp_path: Path) -> None:
        (tmp_path / "a.toml").write_text(ENTRY.replace('"small"', '"gsm8k"'))
        found = read_catalogue(tmp_path)
        assert found["gsm8k"].entry.title == "Small"
        assert found["gsm8k"].own
        assert not found["hellaswag"].own

    def test_a_misspelt_name_gets_a_near_one(self) -> None:
        with pytest.raises(UnknownNameError, match="Did you mean 'gsm8k'"):
            pick(CATALOGUE, "gsm8")

    def test_hashes_are_those_of_git(self) -> None:
        assert git_blob(b"") == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"  # git's empty blob
        source = GSM8K.questions.files[0]
        with pytest.raises(InvalidInputError, match=r"expected git_blob e4c2ff.*Bring https"):
            check(b"another", source, "test.jsonl")


class TestBuild:
    def test_parameters_go_to_the_rows_of_the_order(self) -> None:
        built = build_bank(small(), lines(ROWS), table())
        order = order_of(small().join, 8)
        assert list(built.rows) == order[:6]
        assert [item["prompt"] for item in built.items] == [ROWS[row]["q"] for row in order[:6]]
        assert [item["key"] for item in built.items] == [f"X{n}" for n in range(1, 7)]
        assert built.items[2]["target"] == str(2 * order[2])
        assert built.items[2]["intercept"] == 0.75

    def test_examples_come_from_the_training_file_but_never_from_items(self) -> None:
        plain = build_bank(small(), lines(ROWS), table())
        leaked = {**ROWS[plain.rows[0]], "q": f" {plain.items[0]['prompt']} "}
        training = [leaked, {"q": "What is 70 + 70?", "a": "= 140"}, {"q": "80 + 80?", "a": "=160"}]
        built = build_bank(small(), lines(ROWS), table(), lines(training, "train.jsonl"))
        assert built.examples_from == "training_file"
        assert [example.row for example in built.examples] == [1, 2]
        assert built.examples[0].answer == "140"

    def test_without_a_training_file_they_are_rows_without_parameters(self) -> None:
        built = build_bank(small(), lines(ROWS), table())
        assert built.examples_from == "rows_without_parameters"
        free = [example.row for example in built.examples]
        assert set(free) == set(range(8)) - set(built.rows)

    def test_without_spare_rows_there_are_no_examples(self) -> None:
        everything = "X,a1,d,g,u\n" + "".join(f"X{n},1.5,0,0,1\n" for n in range(1, 9))
        entry = small(**{"items = 6": "items = 8"})
        built = build_bank(entry, lines(ROWS), table(everything))
        assert (built.examples_from, len(built.examples)) == ("none", 0)

    @pytest.mark.parametrize(
        ("rows", "parameters", "said"),
        [
            (ROWS[:-1], PARAMETERS, "test.jsonl has 7 rows: expected the 8 of the test split"),
            (ROWS, PARAMETERS.replace("X6,1.5,1.5,0,1\n", ""), "parameters of 5 items: expected 6"),
            (ROWS, PARAMETERS.replace("X6,", "X9,"), "1 to 8 for the place, got 'X9'"),
            (ROWS, PARAMETERS.replace("X6,", "Y6,"), "got 'Y6'"),
            ([{"q": "x"}] * 8, PARAMETERS, "Expected a field 'a', got a row with q"),
        ],
    )
    def test_files_that_do_not_fit_are_refused_in_one_sentence(
        self, rows: list[dict[str, Any]], parameters: str, said: str
    ) -> None:
        with pytest.raises(InvalidInputError) as fault:
            build_bank(small(), lines(rows), table(parameters))
        assert said in fault.value.detail
        assert "\n" not in fault.value.detail

    def test_a_row_that_is_no_item_is_left_out_with_the_reason(self) -> None:
        rows = [{"q": "?", "o": ["a", "b"], "k": "0"} for _ in range(8)]
        rows[order_of(small().join, 8)[0]]["o"] = ["a", "a"]
        entry = small(**{'target = "{a|after:=|strip}"': 'choices = "o", answer = "k"'})
        built = build_bank(entry, lines(rows), table())
        assert [(row.name, row.reason) for row in built.left_out] == [
            ("X1", "expected options that differ, got \"'a' twice\"")
        ]
        assert len(built.items) == 5


def test_each_bank_reads_the_rows_that_its_dataset_has() -> None:
    """Read rows as the data sets have them, partly in Parquet, with the harness's prompts."""
    arc = {
        "id": "Mercury_7175875",
        "question": "An astronomer observes that a planet rotates faster. Which is likeliest?",
        "choices": {"text": ["Density falls.", "Days get shorter."], "label": ["1", "2"]},
        "answerKey": "2",
    }
    hellaswag = {
        "activity_label": "Roof shingle removal",
        "ctx_a": "A man is sitting on a roof.",
        "ctx_b": "he",
        "endings": ["is using wrap. [substeps] Wrap it.", "starts pulling up roofing [title] Go"],
        "label": 1,
    }
    winogrande = {
        "sentence": "Sarah was a better surgeon than Maria so _ got the easier cases.",
        "option1": "Sarah",
        "option2": "Maria",
        "answer": "2",
    }
    expected = [
        (ARC, arc, arc["question"], "Days get shorter."),
        (
            HELLASWAG,
            hellaswag,
            "Roof shingle removal: A man is sitting on a roof. He",
            "starts pulling up roofing.  Go".replace("  ", " "),
        ),
        (HELLASWAG, {**hellaswag, "label": "0"}, None, "is using wrap. Wrap it."),
        (
            WINOGRANDE,
            winogrande,
            winogrande["sentence"],
            "Maria",
        ),
    ]
    for entry, row, prompt, target in expected:
        one = entry.model_copy(
            update={
                "questions": entry.questions.model_copy(update={"rows": 1}),
                "parameters": entry.parameters.model_copy(update={"items": 1}),
            }
        )
        stream = io.BytesIO()
        parquet.write_table(pa.Table.from_pylist([row]), stream)
        file = GivenFile("x.parquet", stream.getvalue())
        (item,) = build_bank(one, file, table("X,a1,d,g,u\nX1,1,0,0,1\n")).items
        assert item["target"] == target
        assert prompt is None or item["prompt"] == prompt


def test_the_whole_of_gsm8k_is_joined(shared_data: Path) -> None:
    real = shared_data / "real"
    questions = GivenFile("test.jsonl", (real / "gsm8k_test.jsonl").read_bytes())
    parameters = GivenFile(
        "irt.csv", (real / "gsm8k_irt_item_parameters_combined.csv").read_bytes()
    )
    assert check(questions.content, GSM8K.questions.files[0], "test.jsonl").by == "git_blob"
    assert check(parameters.content, GSM8K.parameters.files[0], "irt.csv").by == "git_blob"
    built = build_bank(GSM8K, questions, parameters)
    assert len(built.items) == 1306
    assert not built.left_out
    assert built.examples_from == "rows_without_parameters"
    assert len(built.examples) == 5
    assert all("#### " in example.answer for example in built.examples)
    prompts = {item["prompt"] for item in built.items}
    assert not prompts & {example.content.prompt for example in built.examples}


def test_a_template_takes_fields_of_fields_and_numbers() -> None:
    row: dict[str, JsonValue] = {"a": {"b": "1,234"}, "n": 7}
    assert Template("{a.b|without_commas} of {n}").fill(row) == "1234 of 7"
    with pytest.raises(InvalidInputError, match=r"field 'a', got dict"):
        Template("{a}").fill(row)


EXPECTED = Responses(tasks=2, agents=3, files=(Source(file="responses.jsonl"),))
SOLVED = [
    {"subject_id": f"agent-{n}", "responses": {"one": 1, "two": 0}, "date": "2026-03-02"}
    for n in range(3)
]


class TestAgents:
    def test_fields_beside_the_answers_give_day_model_and_scaffold(self) -> None:
        rows = [*SOLVED[:2], {**SOLVED[2], "model": "GLM 5", "agent": "Terminus 2"}]
        found = read_agents(lines(rows).content, "responses.jsonl", EXPECTED)
        assert found.tasks == ("one", "two")
        assert found.scores.tolist() == [[1, 0]] * 3
        told = found.agents[2]
        assert (told.day, told.model, told.scaffold) == ("2026-03-02", "GLM 5", "Terminus 2")
        assert (found.agents[0].model, found.agents[0].score) == (None, 0.5)

    @pytest.mark.parametrize(
        ("last", "said"),
        [
            ({"subject_id": "agent-0"}, "expected each subject_id once, got 'agent-0' twice"),
            ({"responses": {"one": 1}}, "got more or fewer: 'two'"),
            ({"responses": {"one": {"successes": 3, "trials": 5}, "two": 0}}, "single attempts"),
            ({"responses": {"one": True, "two": 0}}, "expected 0 or 1 of each task, got True"),
            ({"responses": [1, 0]}, "an object `responses`"),
            ({"date": "yesterday"}, "expected a date, got 'yesterday'"),
        ],
    )
    def test_a_faulty_line_is_one_sentence_with_its_number(
        self, last: dict[str, Any], said: str
    ) -> None:
        content = lines([*SOLVED[:2], {**SOLVED[2], **last}]).content
        with pytest.raises(InvalidInputError, match=r"^responses.jsonl, line 3: ") as fault:
            read_agents(content, "responses.jsonl", EXPECTED)
        assert said in fault.value.detail

    def test_a_file_of_another_size_is_refused(self) -> None:
        said = "expected 2 tasks and at least 3 agents, got 2 and 2"
        with pytest.raises(InvalidInputError, match=said):
            read_agents(lines(SOLVED[:2]).content, "responses.jsonl", EXPECTED)

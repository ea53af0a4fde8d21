"""Recorded results: the prompts they contain, and the items made from them."""

import gzip
import json
import random
from base64 import b64decode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from app.adapters.likelihood import option_texts
from app.adapters.prompting import PromptStyle, build_messages, flatten
from app.cli.bank import sent_results
from app.errors import FileFormatError
from app.exchange.item_record import parse_item
from app.exchange.response_files import files_at
from app.exchange.results.found import Found, agreement
from app.exchange.results.lm_eval_items import asked_by
from app.exchange.results.recorded import Choices, SourceFile
from app.items import ScorerSpec
from app.services.responses.imports import AnswerImport, ResultsImport, read_draft, read_results
from tests.exchange.lm_eval_files import folders, sources

NAME = "model/samples_task_2026-11-20T10-00-00.jsonl"


def found_in(rows: Sequence[Mapping[str, Any]], **settings: Any) -> Found:
    text = "\n".join(map(json.dumps, rows))
    return found_of([SourceFile.of_bytes(NAME, text.encode())], **settings)


def found_of(files: Sequence[SourceFile], **settings: Any) -> Found:
    choices = Choices(take_first=True)
    return read_results(ResultsImport(files=files, choices=choices, **settings))[1]


def row(requests: Sequence[tuple[Any, Any]], doc_id: int = 0, **fields: Any) -> dict[str, Any]:
    return {
        "doc_id": doc_id,
        "doc": {"n": doc_id},
        "arguments": {
            f"gen_args_{k}": {"arg_0": context, "arg_1": after}
            for k, (context, after) in enumerate(requests)
        },
        "resps": [[[str(-1.0 - 8 * k), "False"]] for k in range(len(requests))],
        "filter": "none",
        "target": "0",
        "acc": 1.0,
        **fields,
    }


def written(prompt: Any, settings: dict[str, Any], doc_id: int = 0) -> dict[str, Any]:
    """Return a row whose answer the model wrote, and which was scored as right."""
    return row([(prompt, settings)], doc_id, exact_match=1.0, resps=[["0"]], acc=None)


def test_output_items_of_openai_evals_become_items_in_the_words_that_were_sent() -> None:
    turns = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "1 + 1 = ?"}]},
    ]
    rows = [
        {
            "item": {"ideal": "2"},
            "sample": {
                "model": f"m{n}",
                "input": turns,
                "output": [{"role": "assistant", "content": answer}],
                "max_completion_tokens": 64,
            },
            "results": [{"name": "match", "passed": answer == "2"}],
        }
        for n, answer in enumerate(("2", "3"))
    ]
    rows.append({**rows[0], "item": {"input": "2 + 2 = ?", "answer": 4}, "sample": {"model": "m0"}})
    found = found_in(rows[:2])
    (item,) = found.items
    assert item["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1 + 1 = ?"},
    ]
    assert item["target"] == ["2"]
    assert found.asked["max_tokens"] == 64
    assert {(text, score) for _, text, score in found.answers} == {("2", 1.0), ("3", 0.0)}
    (asked,) = found_in(rows[2:]).items
    assert (asked["prompt"], asked["target"]) == ("2 + 2 = ?", ["4"])
    rows[2]["item"] = {"answer": 4}
    with pytest.raises(FileFormatError, match="says what was asked"):
        found_in(rows[2:])


MADE_BY_LM_EVAL = json.loads(Path(__file__).with_name("lm_eval_0.4.13.json").read_text())


@pytest.mark.parametrize("kind", MADE_BY_LM_EVAL)
def test_lm_eval_logs_become_items_with_the_same_prompts(kind: str) -> None:
    log = MADE_BY_LM_EVAL[kind]
    date = "2026-11-27T06-59-13.017130"
    samples = "\n".join(map(json.dumps, log["rows"]))
    files = {
        f"m/samples_{log['task']}_{date}.jsonl": samples,
        f"m/results_{date}.json": json.dumps(log["results"]),
    }
    found = found_of(sources(files))
    style = PromptStyle.from_dict(found.style)
    assert len(found.items) == len(log["rows"]) == 2
    for item, sample in zip(found.items, log["rows"], strict=True):
        content = parse_item(item).content
        requests = [(r["arg_0"], r["arg_1"]) for r in sample["arguments"].values()]
        if style.mode == "loglikelihood":
            texts = option_texts(content, style)
            assert [(text.context, text.continuation) for text in texts] == requests
            continue
        ((asked, settings),) = requests
        turns = build_messages(content, style)
        if isinstance(asked, str):
            assert flatten(turns, style.layout) == asked
        else:
            assert [{"role": t.role, "content": t.content} for t in turns] == json.loads(asked[0])
        assert list(style.stop) == settings["until"]
        assert ("chat_template" in {c.what for c in found.choices}) == (kind == "a chat template")


def test_an_option_in_a_blank_is_restored() -> None:
    sent = [(f"The cup or the box: the {end}", " was big.") for end in ("cup", "box")]
    found = found_in([row(sent)])
    (item,) = found.items
    assert item["prompt"] == "The cup or the box: the _ was big."
    assert (item["choices"], item["target"]) == (["cup", "box"], ["cup"])
    assert found.style["blank"] == "_"
    taken = [(f"a_b {end}", " was big.") for end in ("cup", "box")]
    assert found_in([row(taken)]).style["blank"] == "____"


def _gap(doc_id: int, likelier: int, right: bool) -> dict[str, Any]:
    """Return a sample of WinoGrande, where the target is the rest of the sentence."""
    sent = [(f"The cup or box {doc_id}: the {end}", " was big.") for end in ("cup", "box", "jar")]
    likelihoods = [[[str(-1.0 - (k != likelier)), "False"]] for k in range(3)]
    fields = {"target": "was big.", "resps": likelihoods, "acc": float(right)}
    return row(sent, doc_id, **fields)


def test_right_options_without_a_target_are_read_from_the_scores() -> None:
    rows = [_gap(0, 2, True), _gap(0, 1, False), _gap(1, 0, False), _gap(1, 2, False)]
    found = found_in([*rows, _gap(2, 0, False)])
    assert [item["target"] for item in found.items] == [["jar"], ["box"]]
    assert list(found.left_out) == ["it has no right answer"]
    assert "the likeliest option of an answer that was scored as right" in found.choices[-1].detail
    with pytest.raises(FileFormatError, match=r"explains 50 % of the recorded scores only"):
        found_in([_gap(0, 2, True), _gap(0, 1, True)])
    other = [{**each, "metrics": ["odd"], "odd": each["acc"]} for each in rows]
    with pytest.raises(FileFormatError, match=r"odd does not tell them: choose a metric"):
        found_in(other)


def test_turns_of_a_chat_are_kept_as_they_were_sent() -> None:
    turns = [
        {"role": "system", "content": "Brief."},
        {"role": "user", "content": "1?"},
        {"role": "assistant", "content": "1"},
        {"role": "user", "content": "2?"},
    ]
    found = found_in([written([json.dumps(turns)], {"until": [], "max_gen_toks": 64})])
    assert found.items[0]["messages"] == turns
    assert [choice.taken for choice in found.choices if choice.what == "max_tokens"] == ["64"]


@pytest.mark.parametrize(
    ("target", "accepted"),
    [
        (str(["O'Brien", 'the "Iron" Duke', "Zoë"]), ("O'Brien", 'the "Iron" Duke', "Zoë")),
        ('["a", "b"]', ("a", "b")),
        ("[1, 2]", ("[1, 2]",)),
        ("[a, b)", ("[a, b)",)),
        ("[" * 50_000, ("[" * 50_000,)),
    ],
)
def test_accepted_answers_are_read_from_python_literals(
    target: str, accepted: tuple[str, ...]
) -> None:
    arguments: Any = {"gen_args_0": {"arg_0": "Who?", "arg_1": {"until": []}}}
    assert asked_by({"arguments": arguments, "target": target}, None).targets == accepted


def test_options_without_a_question_are_not_options() -> None:
    """`acc_mutual_info` also asks for the options without a question."""
    sent = [("Q?", " a"), ("Q?", " b"), ("", " a"), ("", " b")]
    (item,) = found_in([row(sent)]).items
    assert (item["prompt"], item["choices"]) == ("Q?", ["a", "b"])


def test_scores_decide_whether_a_target_is_an_index_or_an_option() -> None:
    """Options 1, 2, 3 and target "1": the second by index, the first by its text."""
    sent = [("Q?", " 1"), ("Q?", " 2"), ("Q?", " 3")]
    by_text = row(sent, target="1", acc=1.0)
    assert found_in([by_text]).items[0]["target"] == ["1"]
    assert found_in([{**by_text, "acc": 0.0}]).items[0]["target"] == ["2"]


def test_the_most_frequent_or_the_chosen_wording_is_taken() -> None:
    files = folders(3, 4, tasks=["colours"])
    odd = next(name for name in files if name.startswith("lab1"))
    files[odd] = files[odd].replace("Which is thing", "What is thing")
    found = found_of(sources(files))
    assert found.items[0]["prompt"].startswith("Question: Which is")
    (choice,) = [choice for choice in found.choices if choice.what == "prompt"]
    assert choice.option == "--prompts-of"
    other = found_of(sources(files), prompts_of="lab1/model-01")
    assert other.items[0]["prompt"].startswith("Question: What is")


def test_a_filter_of_the_results_file_scores_as_it_did() -> None:
    found = found_of(sources(folders(2, 6)))
    assert found.scorers[0] == ScorerSpec(
        "extract",
        {
            "remove": [",", "\\$", "(?s).*#### ", "\\.$"],
            "ignore_case": True,
            "pattern": r"#### (\-?[0-9\.\,]+)",
            "match": 0,
        },
    )
    assert found.asked["shots"] == found.style["item_shots"] == 1


def test_rescored_answers_cover_all_items() -> None:
    found = found_of(sources(folders(24, 64)))
    # 200 random rows cover about 61 of the 64 items; every fourth row would cover 16.
    assert len({key for key, _, _ in found.answers}) > 45
    assert sum(score for _, _, score in found.answers) == len(found.answers) / 2 == 100


def test_agreement_is_counted_for_right_and_wrong_scores() -> None:
    always_right = agreement([1.0] * 100, [1.0] * 95 + [0.0] * 5)
    assert (always_right.right, always_right.wrong, always_right.least) == (1.0, 0.0, 0.0)
    assert always_right.differing == (95, 96, 97, 98, 99)
    unread = agreement([None, None, 1.0], [0.0, 1.0, 1.0])
    assert (unread.right, unread.wrong, unread.n_right, unread.n_wrong) == (0.5, 1.0, 2, 1)
    assert agreement([1.0], [1.0]).wrong is None
    assert agreement([], []).least is None


def test_sampling_settings_are_kept() -> None:
    settings = {"until": ["Q:", "\n"], "max_gen_toks": 64, "temperature": 0.5}
    rows = [written(f"Q{n}?", settings, n) for n in range(3)]
    found = found_in(rows)
    assert (found.asked["max_tokens"], found.asked["temperature"]) == (64, 0.5)
    assert found.style["stop"] == ["Q:", "\n"]
    greedy = [("Q2?", {**settings, "max_gen_toks": 128, "do_sample": False})]
    mixed = [*rows[:2], {**rows[2], "arguments": row(greedy)["arguments"]}]
    assert {"max_tokens", "temperature"}.isdisjoint(found_in(mixed).asked)
    alone = found_in([mixed[2]])
    assert (alone.asked["max_tokens"], alone.asked["temperature"]) == (128, 0.0)


def test_a_row_without_a_score_or_a_right_answer_leaves_the_others_alone() -> None:
    rows = [written(f"Q{n}?", {}, n) for n in range(4)]
    rows[1]["exact_match"] = None
    rows[2]["target"] = {"answer": 0}
    found = found_in(rows)
    assert [item["prompt"] for item in found.items] == ["Q0?", "Q3?"]
    assert {reason: len(keys) for reason, keys in found.left_out.items()} == {
        "it has no right answer": 1
    }


def test_variants_of_a_task_are_named_with_their_differences() -> None:
    rows = [written(f"Q{n}?", {"until": [mark]}, n) for n, mark in enumerate(("Q:", "END"))]
    with pytest.raises(FileFormatError, match=r"ended by 'Q:'; .* ended by 'END'.* --prompts-of"):
        found_in(rows)


def test_an_import_of_answers_keeps_their_settings() -> None:
    choices = Choices(filters=("flexible-extract",))
    files = sources(folders(2, 6))
    assert read_draft(AnswerImport(files=files, choices=choices)).choices.asked == {
        "mode": "generate",
        "shots": 1,
        "temperature": 0.0,
        "source": "lm-eval results of sums, exact_match behind filter flexible-extract",
    }
    options = AnswerImport(
        files=sources(folders(2, 6, tasks=["colours"])), choices=Choices(metrics=("acc",))
    )
    asked = read_draft(options).choices.asked or {}
    assert (asked["mode"], asked["normalise"]) == ("loglikelihood", "none")


def test_real_files_give_their_prompts_byte_for_byte(shared_data: Path) -> None:
    for path in sorted((shared_data / "lm_eval").iterdir()):
        found = found_of(files_at([path]))
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        prompts = [r["arguments"]["gen_args_0"]["arg_0"].encode() for r in rows]
        assert [item["prompt"].encode() for item in found.items] == prompts
        if "arc" in path.name:
            gap = found.style["layout"]["gap"]
            options = [[a["arg_1"] for a in r["arguments"].values()] for r in rows]
            assert [[gap + o for o in item["choices"]] for item in found.items] == options
            for item, asked in zip(found.items, rows, strict=True):
                right = asked["doc"]["choices"]["label"].index(asked["doc"]["answerKey"])
                assert item["target"] == [item["choices"][right]]


def _inspect_log(status: str, samples: Sequence[Mapping[str, Any]]) -> SourceFile:
    """Return a log as inspect writes it; settings of task and command are in the plan."""
    log = {
        "version": 2,
        "status": status,
        "eval": {"task": "sums", "model": "mock/m", "model_generate_config": {"top_p": 0.9}},
        "plan": {"config": {"max_tokens": 64, "temperature": 0.5, "stop_seqs": ["\n\n"]}},
        "samples": samples,
    }
    return SourceFile.of_bytes("log.json", json.dumps(log).encode())


def _sample(number: int, **fields: Any) -> dict[str, Any]:
    asked = {"role": "user", "content": f"{number} + 1?"}
    answer = {"role": "assistant", "content": "2", "model": "mock/m"}
    return {
        "id": number,
        "epoch": 1,
        "target": str(number + 1),
        "messages": [asked, answer],
        "output": {"completion": "2"},
        "scores": {"match": {"value": "C" if number == 1 else "I"}},
        **fields,
    }


def test_sampling_settings_are_read_from_the_plan_of_an_inspect_log() -> None:
    found = found_of([_inspect_log("success", [_sample(1), _sample(2)])])
    assert (found.asked["max_tokens"], found.asked["temperature"]) == (64, 0.5)
    assert found.style["stop"] == ["\n\n"]


def test_expected_tokens_are_means_over_models_with_token_counts() -> None:
    """Eq. 10 of WILD: tau counts the tokens of the prompt and of the answer."""

    def log(model: str, read: Any, written: Any) -> SourceFile:
        usage = {"input_tokens": read, "output_tokens": written}
        sample = _sample(1, output={"completion": "2", "usage": usage})
        header = {"task": "sums", "model": model}
        content = {"status": "success", "eval": header, "samples": [sample, _sample(2)]}
        return SourceFile.of_bytes(f"{model}.json", json.dumps(content).encode())

    found = found_of([log("a", 20, 3), log("b", 30, 8), log("c", None, 1e9)])
    tokens = {item["key"]: item.get("expected_tokens") for item in found.items}
    assert tokens == {"sums/1": {"in": 25, "out": 6}, "sums/2": None}
    record = parse_item(found.items[0])
    assert (record.expected_tokens_in, record.expected_tokens_out) == (25, 6)


def test_a_failed_run_is_distinguished_from_files_without_questions() -> None:
    failed = [_sample(1, scores={}, error={"message": "away"}), _sample(2, scores={})]
    with pytest.raises(FileFormatError) as fault:
        found_of([_inspect_log("error", failed)])
    assert (
        "None of the 2 recorded answers was scored (1 ended in an error; 1 not_scored, first "
        in (fault.value.detail)
    )
    assert "log.json:2: the sample has no scores; the run is not finished (error))" in (
        fault.value.detail
    )
    some = found_of([_inspect_log("cancelled", [_sample(1), *failed[1:]])])
    assert [item["key"] for item in some.items] == ["sums/1"]


def test_a_large_log_is_split_into_equivalent_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [
        _sample(
            n,
            messages=[
                {"role": "user", "content": "attachment://a" if n else "2 + 2?"},
                {"role": "assistant", "content": "4", "model": "mock/m"},
            ],
            attachments={"a": "3 + 1?", "b": "of an event"},
            events=[random.Random(n).randbytes(4000).hex()],
            invalidation={"author": "me"} if n == 7 else None,
        )
        for n in range(30)
    ]
    whole = _inspect_log("success", samples)
    monkeypatch.setattr(sent_results, "_PART", 8000)
    monkeypatch.setattr(sent_results, "_PIECE", 3000)
    parts = [file for part in sent_results._parts([whole]) for file in part]
    assert len(parts) > 2
    texts = [gzip.decompress(b64decode(part["content_base64"])) for part in parts]
    assert not any(b"events" in text or b"of an event" in text for text in texts)

    def read(files: list[SourceFile]) -> tuple[Any, ...]:
        request = ResultsImport(files=files, choices=Choices(take_first=True))
        draft, found = read_results(request)
        return found.items, found.asked, [sheet.counts() for sheet in draft.sheets.values()]

    pieces = [SourceFile.of_bytes(f"{n}/log.json", text) for n, text in enumerate(texts)]
    assert read(pieces) == read([whole])


def test_a_list_of_samples_is_split_into_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row([("3?", " 4"), ("3?", " 5")], n, arguments=[["3?", " 4"]]) for n in range(30)]
    whole = SourceFile.of_bytes(NAME.removesuffix("l"), json.dumps(rows, indent=2).encode())
    monkeypatch.setattr(sent_results, "_PIECE", 1000)
    parts = [file for part in sent_results._parts([whole]) for file in part]
    texts = [gzip.decompress(b64decode(part["content_base64"])) for part in parts]
    assert len(texts) > 2
    assert [json.loads(line) for text in texts for line in text.splitlines()] == rows

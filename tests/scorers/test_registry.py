from importlib.metadata import EntryPoint
from typing import ClassVar

import numpy as np
import pytest
from typing_extensions import override

from app.errors import AlreadyExistsError, InvalidInputError, UnknownNameError
from app.items import Answer, ItemContent, ScorerSpec
from app.scorers import Mark, Scored, build, check, describe
from app.scorers.base import Scorer
from app.scorers.registry import ENTRY_POINT_GROUP, ScorerRegistry


class Longest(Scorer):
    """Scores long answers as good answers."""

    version: ClassVar[str] = "3"

    enough: int = 10

    @override
    async def score(self, item: ItemContent, answer: Answer) -> Mark:
        return Scored(score=min(1.0, len(answer.text) / self.enough), extractor="length")

    @override
    def examples(self, item: ItemContent, rng: np.random.Generator) -> tuple[str, str]:
        return "x" * self.enough, "x"


class ByLength:
    """The methods of a scorer, for any class that is one."""

    async def score(self, item: ItemContent, answer: Answer) -> Mark:
        return Scored(score=float(len(answer.text) > 3), extractor="length")

    def examples(self, item: ItemContent, rng: np.random.Generator) -> tuple[str, str]:
        return "long", "x"


class WithMixin(Scorer, ByLength):
    """Scores long answers as good answers."""


class NoScorer(Scorer):
    """Lacks a method `score`."""


def _point(name: str, attribute: str, module: str = __name__) -> EntryPoint:
    return EntryPoint(name, f"{module}:{attribute}", ENTRY_POINT_GROUP)


def test_an_unknown_name_suggests_the_near_one() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'numeric'"):
        build(ScorerSpec("numerc"))


def test_all_faulty_parameters_are_reported_at_once_with_the_known_ones() -> None:
    known = "tolerance: no such field; there are abs_tol, rel_tol"
    with pytest.raises(InvalidInputError, match=known) as caught:
        build(ScorerSpec("numeric", {"abs_tol": "x", "rel_tol": -1, "tolerance": 1}))
    wrong = {"/params/abs_tol", "/params/rel_tol", "/params/tolerance"}
    assert {p.pointer for p in caught.value.problems} == wrong


async def test_an_error_message_has_no_words_of_pydantic() -> None:
    with pytest.raises(InvalidInputError) as caught:
        await check(ScorerSpec("pattern", {"pattern": "("}))
    assert "Value error" not in caught.value.detail
    assert caught.value.problems[0].detail.startswith("pattern is not a regular expression")


def test_a_name_can_be_registered_once() -> None:
    with pytest.raises(AlreadyExistsError, match="Two scorers are named 'long'"):
        ScorerRegistry({"long": Longest}).register("long", Longest)


@pytest.mark.parametrize("thing", [NoScorer, Longest(), print, "Longest"])
def test_what_is_no_scorer_class_cannot_be_registered(thing: object) -> None:
    with pytest.raises(InvalidInputError, match="must be a subclass"):
        ScorerRegistry({}).register("thing", thing)


def test_a_scorer_of_an_installed_package_is_found_through_its_entry_point() -> None:
    registry = ScorerRegistry({})
    registry.load((_point("longest", "Longest"),))
    assert registry.build(ScorerSpec("longest", {"enough": 5})) == Longest(enough=5)


async def test_a_scorer_may_have_its_methods_from_a_mixin() -> None:
    registry = ScorerRegistry({})
    registry.register("mixed", WithMixin)
    item, answer = ItemContent(prompt="q", target=("t",)), Answer(text="long")
    scored = await registry.build(ScorerSpec("mixed")).score(item, answer)
    assert scored == Scored(score=1.0, extractor="length")


def test_an_entry_point_cannot_take_a_name_that_is_taken() -> None:
    with pytest.raises(AlreadyExistsError):
        ScorerRegistry({"longest": Longest}).load((_point("longest", "Longest"),))


@pytest.mark.parametrize(
    ("point", "word"),
    [
        (_point("odd", "Missing"), "odd"),
        (_point("odd", "NoScorer"), "odd"),
        (_point("odd", "Scorer", module="no_such_module_here"), "no_such_module_here"),
    ],
)
def test_an_entry_point_that_leads_nowhere_is_a_clear_error(point: EntryPoint, word: str) -> None:
    with pytest.raises(InvalidInputError, match=word):
        ScorerRegistry({}).load((point,))


def test_every_scorer_describes_itself() -> None:
    described = {entry["name"]: entry for entry in describe()}
    assert set(described) >= {"choice", "exact", "includes", "numeric", "pattern"}
    for entry in described.values():
        assert entry["version"]
        assert entry["description"]
        assert entry["scale"] == {"min": 0.0, "max": 1.0, "higher_is_better": True}
        assert entry["params"]["additionalProperties"] is False
    assert described["numeric"]["params"]["properties"]["abs_tol"]["minimum"] == 0
    assert described["pattern"]["params"]["required"] == ["pattern"]
    measures = {name: (*entry["measure"].values(),) for name, entry in described.items()}
    assert {name: each for name, each in measures.items() if each != (0.0, 1.0, True)} == {
        "bleu": (0.0, 100.0, True),
        "chrf": (0.0, 100.0, True),
        "differential": (-1.0, 1.0, True),
        "embedding": (-1.0, 1.0, True),
        "judge": (1.0, 10.0, True),
        "readability": (None, None, False),
    }


#: What a scorer needs beside the parameter in question.
NEEDED: dict[str, dict[str, object]] = {
    "bertscore": {"model": "m", "layer": 1},
    "callback": {"endpoint": "e"},
    "differential": {"incorrect": ["x"]},
    "embedding": {"endpoint": "e"},
    "judge": {"judges": ["x"], "highest": 1000},
    "pattern": {"pattern": "x"},
    "readability": {"limit": 60.0},
}


@pytest.mark.parametrize(
    ("name", "param", "allowed", "refused"),
    [
        ("bertscore", "layer", [1], [0]),
        ("bertscore", "model", ["m" * 100], ["m" * 101, "../m", "/m", "m/m", "..", ".", "", "m\n"]),
        ("callback", "endpoint", ["e", "e" * 200], ["", "e" * 201]),
        ("callback", "lowest", [0.99], [1.0]),
        ("choice", "extractors", [["line"]], [[], ["nose"], ["line", "line"], "line"]),
        ("chrf", "word_order", [0, 2], [-1, 3]),
        ("closeness", "abs_limit", [0.01], [0.0]),
        ("closeness", "rel_limit", [0.01], [0.0]),
        ("differential", "incorrect", [["x"], ["x"] * 100], [[], [""], ["x"] * 101]),
        ("embedding", "floor", [-1.0, 0.99], [-1.01, 1.0]),
        ("extract", "match", [-1000, 1000], [-1001, 1001]),
        ("extract", "pattern", ["x", "x" * 2000], ["", "x" * 2001]),
        ("extract", "remove", [["x"] * 20], [["x"] * 21]),
        ("extract", "timeout_s", [0.01, 60.0], [0.0, 60.1]),
        ("judge", "attempts", [1, 10], [0, 11]),
        ("judge", "budget", [{"tokens": 1}, {"calls": 1}], [{"tokens": 0}, {"calls": 0}]),
        ("judge", "budget", [{"usd": 0.01}], [{"usd": 0.0}, {"usd": float("inf")}]),
        ("judge", "highest", [2, 1000], [1, 1001]),
        ("judge", "judges", [["x"], ["x"] * 10], [[], ["x"] * 11]),
        ("judge", "lowest", [0, 999], [-1, 1000]),
        ("judge", "repeats", [1, 10], [0, 11]),
        ("judge", "rubric", ["x"], [""]),
        ("numeric", "abs_tol", [0.0], [-0.01, float("inf"), "1"]),
        ("numeric", "rel_tol", [0.0, 0.99], [-0.01, 1.0]),
        ("numeric", "timeout_s", [0.01, 60.0], [0.0, 60.1]),
        ("pattern", "pattern", ["x", "x" * 2000], ["", "x" * 2001]),
        ("pattern", "timeout_s", [0.01, 60.0], [0.0, 60.1]),
        ("readability", "goal", [0.0, 30.0], [-0.01, 30.1]),
        ("readability", "limit", [8.01, 60.0], [8.0, 60.1]),
        ("span_f1", "separator", [";", ";" * 10], ["", ";" * 11]),
    ],
)
def test_a_parameter_has_bounds_and_never_changes(
    name: str, param: str, allowed: list[object], refused: list[object]
) -> None:
    def spec(value: object) -> ScorerSpec:
        return ScorerSpec(name, {**NEEDED.get(name, {}), param: value})

    for value in allowed:
        scorer = build(spec(value))
        with pytest.raises(ValueError, match="frozen"):
            setattr(scorer, param, value)
    for value in refused:
        with pytest.raises(InvalidInputError, match="Wrong parameters"):
            build(spec(value))


@pytest.mark.parametrize(
    ("name", "params", "words"),
    [
        ("judge", {}, "judges: Field required"),
        ("judge", {"judges": []}, "judges: expected at least 1 entry, got 0"),
        ("judge", {"judges": ["x"], "lowest": 5, "highest": 5}, "highest must be above lowest"),
        ("judge", {"judges": ["x"], "budget": {}}, "at least one of usd, tokens and calls"),
        ("callback", {"endpoint": "e", "lowest": -1.7e308, "highest": 1.7e308}, "too far apart"),
        ("closeness", {}, "rel_limit, abs_limit or both"),
        ("readability", {"goal": 9.0, "limit": 9.0}, "limit must be above goal"),
    ],
)
def test_a_scorer_that_could_not_work_is_refused(
    name: str, params: dict[str, object], words: str
) -> None:
    with pytest.raises(InvalidInputError, match=words):
        build(ScorerSpec(name, params))


@pytest.mark.parametrize("score", [-0.1, 1.1, float("nan"), float("inf")])
def test_a_score_outside_zero_to_one_cannot_be_made(score: float) -> None:
    with pytest.raises(ValueError, match="0, 1"):
        Scored(score=score)

"""BERTScore: its errors where it cannot be used, and its values with a tiny model."""

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from typing_extensions import override

from app import scorers
from app.errors import InvalidInputError
from app.items import Answer, ItemContent, Outcome, ScorerSpec
from app.sandbox.pool_process import WithoutPandas
from app.scorers import NotScored, Scored, build, mark
from app.scorers.bertscore import BertScore
from tests.contracts.scorers import ScorerContract
from tests.values import of_kind

SPEC = ScorerSpec("bertscore", {"model": "tiny", "layer": 2})
WRONG = "A tunnel collapsed."
DIFFERENTIAL = ScorerSpec(
    "differential",
    {"incorrect": ["Nobody voted.", WRONG], "metric": "bertscore", "params": dict(SPEC.params)},
)
ITEM = ItemContent(prompt="Sum it up.", target=("The bridge was approved.", "A new bridge."))
TEXT = "The council approved a bridge on Monday."


def neural(cls: type) -> type:
    """Skip a class where the extra is missing, and give it models made on the spot."""
    cls = pytest.mark.skipif(find_spec("bert_score") is None, reason="uv sync --extra neural")(cls)
    cls = pytest.mark.filterwarnings("default")(cls)  # torch and transformers warn
    return pytest.mark.neural(pytest.mark.usefixtures("models")(cls))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a directory with a model of random weights, three layers and one-letter words."""
    with pytest.MonkeyPatch.context() as patch:
        finders = [each for each in sys.meta_path if not isinstance(each, WithoutPandas)]
        patch.setattr(sys, "meta_path", finders)  # torch needs pandas
        folder = tmp_path_factory.mktemp("models")
        save_model(folder / "tiny")
        patch.setenv("SEXTANT_NEURAL_MODELS", str(folder))
        yield folder


def save_model(folder: Path) -> None:
    import torch
    from transformers import BertConfig, BertModel, BertTokenizer

    letters = "abcdefghijklmnopqrstuvwxyz.0123456789"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{a}" for a in letters)]
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        initializer_range=0.5,  # with the default value the layers are nearly equal
    )
    BertModel(config).save_pretrained(folder)
    BertTokenizer(vocab={word: i for i, word in enumerate(words)}).save_pretrained(folder)


def embeddings(folder: Path, text: str) -> NDArray[Any]:
    """Return the unit vectors of the tokens of a text, from the second layer."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
    with torch.no_grad():
        out = AutoModel.from_pretrained(folder)(**tokens, output_hidden_states=True)
    found = np.asarray(out.hidden_states[2][0], dtype=float)
    scaled: NDArray[Any] = found / np.linalg.norm(found, axis=1, keepdims=True)
    return scaled


def f1_by_hand(folder: Path, text: str, reference: str) -> float:
    """Return F1 by equations 2 to 4 of the paper; separators can match but do not count."""
    cosines = embeddings(folder, text) @ embeddings(folder, reference).T
    precision = cosines.max(axis=1)[1:-1].mean()
    recall = cosines.max(axis=0)[1:-1].mean()
    return float(2 * precision * recall / (precision + recall))


async def score(spec: ScorerSpec, text: str, item: ItemContent = ITEM) -> float:
    result = of_kind(await mark(build(spec), item, Answer(text=text)), Scored)
    return result.score


@neural
class TestBertScore(ScorerContract):
    spec: ClassVar[ScorerSpec] = SPEC
    item: ClassVar[ItemContent] = ITEM

    async def test_a_sentence_against_itself_scores_one(self) -> None:
        assert await score(SPEC, TEXT, ItemContent(prompt="?", target=(TEXT,))) == 1.0

    async def test_the_best_target_counts_by_greedy_matching_of_cosines(self, models: Path) -> None:
        values = [f1_by_hand(models / "tiny", TEXT, target) for target in ITEM.target]
        assert values[0] != pytest.approx(values[1], abs=1e-3)
        assert await score(SPEC, TEXT) == pytest.approx(max(values), abs=1e-5)

    async def test_layers_differ_and_one_too_many_is_refused(self) -> None:
        first = ScorerSpec("bertscore", {**SPEC.params, "layer": 1})
        assert await score(first, TEXT) != pytest.approx(await score(SPEC, TEXT), abs=1e-3)
        await scorers.check(SPEC)
        with pytest.raises(InvalidInputError, match="'tiny' has 3 layers, got 4"):
            await scorers.check(ScorerSpec("bertscore", {**SPEC.params, "layer": 4}))

    async def test_a_model_is_loaded_once_for_all_answers(self, models: Path) -> None:
        before = await score(SPEC, TEXT)
        weights = models / "tiny" / "model.safetensors"
        kept = weights.rename(models / "kept")
        weights.write_bytes(b"no weights")
        try:
            assert await score(SPEC, TEXT) == before
        finally:
            kept.rename(weights)

    async def test_only_the_beginning_of_a_long_text_counts(self) -> None:
        assert 0.0 < await score(SPEC, TEXT + " and so on" * 1_000) < 1.0


@neural
class TestDifferentialBertScore(ScorerContract):
    spec: ClassVar[ScorerSpec] = ScorerSpec(
        "differential", {**DIFFERENTIAL.params, "incorrect": [WRONG]}
    )
    item: ClassVar[ItemContent] = ITEM

    async def test_it_is_the_difference_of_the_best_pairs(self, models: Path) -> None:
        await scorers.check(DIFFERENTIAL)
        right, wrong = (
            max(f1_by_hand(models / "tiny", TEXT, reference) for reference in references)
            for references in (ITEM.target, DIFFERENTIAL.params["incorrect"])
        )
        assert await score(DIFFERENTIAL, TEXT) == pytest.approx((right - wrong + 1) / 2, abs=1e-5)

    @override
    async def test_the_right_reference_answer_scores_one(self) -> None:
        """The right answer has a half plus half its distance from the wrong one: not one."""
        assert 0.5 < await score(self.spec, ITEM.target[0]) < 1.0


@pytest.mark.parametrize("spec", [SPEC, DIFFERENTIAL])
async def test_without_the_extra_one_sentence_says_how_to_get_it(
    spec: ScorerSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.scorers.bertscore.find_spec", lambda _: None)
    with pytest.raises(InvalidInputError, match="uv sync --extra neural"):
        await scorers.check(spec)
    result = of_kind(await build(spec).score(ITEM, Answer(text=TEXT)), NotScored)
    assert result.outcome is Outcome.ERROR
    assert "uv sync --extra neural" in result.reason


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        (["config.json", "model.safetensors"], "'tiny' has 3 layers, got 4"),
        (None, "which has: other"),
        (["config.json", "pytorch_model.bin"], "may run code, remove them: pytorch_model.bin"),
        (["config.json", "model.safetensors", "a.pt"], "may run code, remove them: a.pt"),
        (["config.json"], "needs a config.json and its weights in the format safetensors"),
        (["model.safetensors"], "needs a config.json and its weights in the format safetensors"),
    ],
)
async def test_a_directory_without_a_safetensors_model_is_refused(
    files: list[str] | None, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.scorers.bertscore.find_spec", lambda _: True)
    monkeypatch.setenv("SEXTANT_NEURAL_MODELS", str(tmp_path))
    folder = tmp_path / ("other" if files is None else "tiny")
    folder.mkdir()
    for name in files or ():
        (folder / name).write_text('{"num_hidden_layers": 3}')
    with pytest.raises(InvalidInputError, match=sentence):
        await scorers.check(ScorerSpec("bertscore", {"model": "tiny", "layer": 4}))


def test_the_nearest_target_counts_and_blank_texts_are_no_targets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    models = ModuleType("app.scorers.libraries.bert_models")
    vars(models)["f1"] = lambda *args: [len(text) / 10 for text in args[3]] if args[1] == 2 else []
    monkeypatch.setitem(sys.modules, models.__name__, models)
    scorer = of_kind(build(SPEC), BertScore)
    assert scorer.similarity("Oslo", ["four", "sixsix", "two", " "]) == 0.6
    assert scorer.similarity(" ", ["four"]) == 0.0
    assert scorer.similarity("Oslo", [" "]) is None


async def test_a_server_without_models_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.scorers.bertscore.find_spec", lambda _: True)
    monkeypatch.delenv("SEXTANT_NEURAL_MODELS", raising=False)
    with pytest.raises(InvalidInputError, match="which has: none"):
        await scorers.check(SPEC)

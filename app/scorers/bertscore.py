"""BERTScore: similarity of an answer to references, by the embeddings of a language model.

The operator provides the models: each is a folder below `SEXTANT_NEURAL_MODELS`, and a scorer names
one. Nothing is downloaded, and nothing is unpickled.
"""

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field
from typing_extensions import override

from app.items import Answer, ItemContent
from app.scorers.base import Mark
from app.scorers.overlap import TextMetric
from app.settings import Settings

#: File formats of weights that may run code when they are read.
_PICKLED = {".bin", ".ckpt", ".pickle", ".pkl", ".pt", ".pth"}
_NO_EXTRA = (
    "BERTScore needs the extra neural: uv sync --extra neural, or pip install "
    "'sextant-server[neural]'"
)


class BertScore(TextMetric):
    """BERTScore F1 of the answer and its nearest target, by a model of the operator. Scale 0 to 1.

    Each token is matched with the most similar token of the other text, by the cosine of their
    embeddings. Tokens have equal weights and nothing is rescaled, the defaults of the `bert-score`
    package. Only the first 512 tokens of a text count. Needs the extra `neural`.

    Source: Zhang et al. (2020), "BERTScore: Evaluating Text Generation with BERT".

    Attributes:
        model: Name of a folder below the server's `SEXTANT_NEURAL_MODELS`.
        layer: Layer of the compared embeddings: 40 for deberta-xlarge-mnli, 17 for roberta-large.
    """

    libraries: ClassVar[tuple[str, ...]] = ("pandas", "app.scorers.libraries.bert_models")
    memory: ClassVar[int] = 1 << 30

    model: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
    layer: Annotated[int, Field(ge=1)]

    @property
    @override
    def work_s(self) -> float:
        return 120.0  # enough for a few texts of 512 tokens with a large model on one thread

    @override
    async def check(self) -> None:
        if fault := fault_of(self.model, self.layer):
            raise ValueError(fault)

    @override
    def comparable(self, targets: Sequence[str]) -> bool:
        return any(target.strip() for target in targets)

    @override
    async def score(self, item: ItemContent, answer: Answer) -> Mark:
        if fault := fault_of(self.model, self.layer):
            return self.gave_up(fault)
        return await super().score(item, answer)

    @override
    def similarity(self, text: str, targets: Sequence[str]) -> float | None:
        """Compute the similarity; call this only in helper processes, which load the models."""
        from app.scorers.libraries.bert_models import f1

        references = [target for target in targets if target.strip()]
        if not references:
            return None
        return max(f1(self.model, self.layer, text, references)) if text.strip() else 0.0


def folders() -> dict[str, Path]:
    """Folders of the operator's models by name."""
    within = Settings().neural_models
    if within is None or not within.is_dir():
        return {}
    return {path.name: path for path in sorted(within.iterdir()) if path.is_dir()}


def fault_of(model: str, layer: int = 1) -> str | None:
    """The reason why a layer of a model cannot be used; None if it can."""
    if not all(map(find_spec, ("bert_score", "torch", "transformers"))):
        return _NO_EXTRA
    folder = folders().get(model)
    if folder is None:
        known = ", ".join(folders()) or "none"
        return f"model {model!r} is not in the server's SEXTANT_NEURAL_MODELS, which has: {known}"
    names = sorted(path.name for path in folder.iterdir())
    if pickled := [name for name in names if Path(name).suffix in _PICKLED]:
        return f"model {model!r} has files that may run code, remove them: {', '.join(pickled)}"
    if not any(name.endswith(".safetensors") for name in names) or "config.json" not in names:
        return f"model {model!r} needs a config.json and its weights in the format safetensors"
    layers = json.loads((folder / "config.json").read_bytes()).get("num_hidden_layers", 0)
    return f"model {model!r} has {layers} layers, got {layer}" if layer > layers else None

"""BERTScore by the operator's models, which a helper process loads before it forks children.

Only helper processes import this, because torch and the models take seconds to load.
"""

import contextlib
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from bert_score.utils import bert_cos_score_idf
from transformers import AutoModel, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from app.scorers.bertscore import fault_of, folders

_MAX_TOKENS = 512


def f1(name: str, layer: int, text: str, references: Sequence[str]) -> list[float]:
    """BERTScore F1 of a text and each reference, by a layer of a model."""
    model, tokenizer = _loaded(name)
    separators = (tokenizer.cls_token_id, tokenizer.sep_token_id)
    weights = defaultdict(lambda: 1.0, dict.fromkeys(separators, 0.0))
    texts = [each.encode(errors="replace").decode() for each in (text, *references)]
    layers = model.encoder.layer
    try:
        model.encoder.layer = layers[:layer]
        answers = texts[:1] * len(references)
        scores = bert_cos_score_idf(  # with batches of one, a long text does not pad others
            model, texts[1:], answers, tokenizer, weights, batch_size=1, device="cpu"
        )
    finally:
        model.encoder.layer = layers
    # Single precision has no more digits; with them, a text would not equal itself exactly.
    return [round(value, 6) for value in scores[:, 2].tolist()]


@cache
def _loaded(name: str) -> tuple[Any, Any]:
    """A model and its tokenizer."""
    own = {"local_files_only": True, "trust_remote_code": False}
    folder = folders()[name]
    model = AutoModel.from_pretrained(folder, use_safetensors=True, dtype=torch.float32, **own)
    tokenizer = AutoTokenizer.from_pretrained(folder, **own)
    positions = model.config.max_position_embeddings
    tokenizer.model_max_length = min(tokenizer.model_max_length, positions, _MAX_TOKENS)
    return model.eval(), tokenizer


torch.set_num_threads(1)
disable_progress_bar()
for each in folders():
    with contextlib.suppress(Exception):  # the child that needs this model reports the error
        if fault_of(each) is None:
            _loaded(each)

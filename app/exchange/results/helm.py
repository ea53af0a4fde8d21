"""HELM run folders: scores from `per_instance_stats.json`, names from `run_spec.json` beside it."""

import math
from collections.abc import Iterator, Mapping

from app.exchange.json_text import json_lines, small_json
from app.exchange.results.recorded import (
    FIRST_TRIAL,
    Choices,
    LeftOut,
    Recorded,
    Source,
    answered,
    choose,
    key_of,
    list_at,
    required_name,
    score_or_reason,
    text_of,
    value_at,
)
from app.items import JsonValue

#: Metrics that score an answer; the file's other metrics count tokens, time and so on.
METRICS = frozenset({
    "exact_match", "quasi_exact_match", "prefix_exact_match", "quasi_prefix_exact_match",
    "final_number_exact_match", "math_equiv", "math_equiv_chain_of_thought",
    "ifeval_strict_accuracy", "f1_score", "rouge_l", "bleu_4", "chain_of_thought_correctness",
    "omni_math_accuracy", "wildbench_score_rescaled",
})  # fmt: skip
#: Parts of a run's name that name the examinee, not the scenario.
_EXAMINEE_ARGUMENTS = ("model=", "model_deployment=")


def read_helm(source: Source, choices: Choices) -> Iterator[Recorded | LeftOut]:
    """Answers of a run; answers to perturbed instances are left out.

    Raises:
        FileFormatError: Not a HELM file, or several metrics of which none is chosen.
        InvalidInputError: No `run_spec.json` names the model, and no examinee is given.
    """
    specs = map(small_json, source.siblings("run_spec.json"))
    spec = next((spec for spec in specs if spec is not None), {})
    examinee = required_name(
        choices.examinee or text_of(spec, "adapter_spec", "model"), "model", source.name
    )
    scenario = _scenario(text_of(spec, "name") or source.file.folder)
    for row, entry in json_lines(source.file):
        if isinstance(entry, LeftOut):
            yield entry
        elif "instance_id" not in entry:
            yield LeftOut(row, "unreadable", "expected an entry with an instance_id")
        elif entry.get("perturbation"):
            yield LeftOut(row, "perturbed")
        else:
            trial = entry.get("train_trial_index", 0)
            if not isinstance(trial, int):
                yield LeftOut(row, "unreadable", f"expected a train_trial_index, got {trial!r:.80}")
                continue
            stats = _stats(entry)
            known = [name for name in stats if name in choices.metrics or name in METRICS]
            metric = choose("metric", known or stats, choices.metrics, f"{source.name}:{row}")
            item = key_of(scenario, entry["instance_id"])
            score = _mean(stats[metric], row, choices)
            yield answered(examinee, item, FIRST_TRIAL + trial, score, row)


def _scenario(run_name: str) -> str:
    """`mmlu:subject=anatomy,model=openai_gpt2` without the model."""
    name, _, arguments = run_name.partition(":")
    kept = [part for part in arguments.split(",") if not part.startswith(_EXAMINEE_ARGUMENTS)]
    return ":".join(filter(None, (name, ",".join(kept))))


def _stats(entry: Mapping[str, JsonValue]) -> dict[str, dict[str, JsonValue]]:
    """Name of each metric to its figures, without figures of perturbed instances."""
    found: dict[str, dict[str, JsonValue]] = {}
    for stat in list_at(entry, "stats"):
        name = value_at(stat, "name")
        if isinstance(stat, dict) and isinstance(name, dict) and not name.get("perturbation"):
            found.setdefault(str(name.get("name")), stat)
    return found


def _mean(stat: Mapping[str, JsonValue], row: int, choices: Choices) -> float | LeftOut:
    count = stat.get("count")
    if count == 0:
        return LeftOut(row, "not_scored", "the metric counts no value")
    mean = stat.get("mean")
    total = stat.get("sum")
    if mean is None and isinstance(total, int | float) and isinstance(count, int | float):
        try:
            mean = total / count
        except OverflowError:  # whole numbers of hundreds of digits
            mean = math.inf
    return score_or_reason(mean, row, choices)

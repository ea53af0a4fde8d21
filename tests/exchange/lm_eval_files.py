"""Result directories as lm-eval 0.4 writes them, of models that answer by a known Rasch bank."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from app.exchange.results.recorded import SourceFile

DATE = "2026-11-20T10-00-00.123456"
FILTERS = {
    "strict-match": (r"#### (\-?[0-9\.\,]+)", 0),
    "flexible-extract": (r"(-?[$0-9.,]{2,})|(-?[0-9]+)", -1),
}
IGNORED = [",", "\\$", "(?s).*#### ", "\\.$"]
SHOTS = "Question: What is 1 + 2?\nAnswer: 1 + 2 = 3\n#### 3\n\n"


def folders(
    n_models: int, n_items: int, *, seed: int = 3, tasks: Sequence[str] = ("sums",)
) -> dict[str, str]:
    """Return files as text by path: a directory per model, with results and samples per task.

    `sums` is generated with two filters and one example; `colours` is multiple choice with `acc`
    and `acc_norm`.
    """
    rng = np.random.default_rng(seed)
    b = rng.normal(size=n_items)
    files: dict[str, str] = {}
    for model in range(n_models):
        theta = rng.normal()
        right = rng.random(n_items) < 1 / (1 + np.exp(b - theta))
        name = f"lab{model % 7}/model-{model:02d}"
        folder = name.replace("/", "__")
        configs = {}
        for task in tasks:
            rows, configs[task] = (_sums if task == "sums" else _colours)(task, right)
            files[f"{folder}/samples_{task}_{DATE}.jsonl"] = "".join(
                json.dumps(row, ensure_ascii=False) + "\n" for row in rows
            )
        results = {
            "model_name": name,
            "config": {"model": "local-completions", "model_args": f"model={name}"},
            "configs": configs,
            "n-shot": {task: 1 if task == "sums" else 0 for task in tasks},
            "chat_template": None,
        }
        files[f"{folder}/results_{DATE}.json"] = json.dumps(results)
    return files


def sources(files: Mapping[str, str]) -> list[SourceFile]:
    """Return the files as uploaded sources."""
    return [SourceFile.of_bytes(path, text.encode()) for path, text in files.items()]


def _row(doc_id: int, doc: dict[str, Any], arguments: list[list[Any]]) -> dict[str, Any]:
    text = json.dumps(doc, indent=2, ensure_ascii=False)
    return {
        "doc_id": doc_id,
        "doc": doc,
        "arguments": {
            f"gen_args_{k}": {f"arg_{j}": part for j, part in enumerate(parts)}
            for k, parts in enumerate(arguments)
        },
        "doc_hash": hashlib.sha256(text.encode()).hexdigest(),
        "prompt_hash": hashlib.sha256(arguments[0][0].encode()).hexdigest(),
    }


def _sums(task: str, right: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    until = {"until": ["Question:", "</s>"], "do_sample": False, "temperature": 0.0}
    rows = []
    for name in FILTERS:
        for i, is_right in enumerate(right):
            answer = f"{i} + {2 * i} = {3 * i}\n#### {3 * i}"
            doc = {"question": f"What is {i} + {2 * i}?", "answer": answer}
            prompt = f"{SHOTS}Question: {doc['question']}\nAnswer:"
            said = f" It is {3 * i if is_right else 3 * i + 7}, I think\n#### "
            said += f"{3 * i if is_right else 3 * i + 7:,}." if i % 5 else "unsure"
            marked = bool(is_right and i % 5)
            rows.append(
                {
                    **_row(i, doc, [[prompt, until]]),
                    "target": answer,
                    "resps": [[said]],
                    "filtered_resps": ["x"],
                    "filter": name,
                    "metrics": ["exact_match"],
                    "exact_match": float(marked if name == "strict-match" else is_right),
                }
            )
    config = {
        "task": task,
        "output_type": "generate_until",
        "num_fewshot": 1,
        "metric_list": [
            {"metric": "exact_match", "ignore_case": True, "regexes_to_ignore": IGNORED}
        ],
        "filter_list": [
            {
                "name": name,
                "filter": [
                    {"function": "regex", "regex_pattern": pattern, "group_select": match},
                    {"function": "take_first"},
                ],
            }
            for name, (pattern, match) in FILTERS.items()
        ],
    }
    return rows, config


def _colours(task: str, right: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    rows = []
    for i, is_right in enumerate(right):
        options = [f"größer {i}", f"seven {i} of them", f"a colour, number {i}"]
        gold = i % 3
        doc = {"question": f"Which is thing {i}?", "choices": options, "answer": gold}
        context = f"Question: {doc['question']}\nAnswer:"
        chosen = gold if is_right else (gold + 1) % 3
        likely = [-1.0 if k == chosen else -2.0 for k in range(3)]
        likely = [value * len(option) for value, option in zip(likely, options, strict=True)]
        rows.append(
            {
                **_row(i, doc, [[context, f" {option}"] for option in options]),
                "target": str(gold),
                "resps": [[[str(value), "False"]] for value in likely],
                "filtered_resps": [[str(value), "False"] for value in likely],
                "filter": "none",
                "metrics": ["acc", "acc_norm"],
                "acc": float(int(np.argmax(likely)) == gold),
                "acc_norm": float(is_right),
            }
        )
    return rows, {"task": task, "output_type": "multiple_choice", "num_fewshot": 0}

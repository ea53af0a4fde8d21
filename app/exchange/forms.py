"""Fixed short forms as files: `item,weight`; the first row, without an item, is the constant.

A form can also be written as settings of an lm-eval run, with the numbers of its documents.
"""

import json
from collections.abc import Iterable, Sequence

from app.errors import FileFormatError
from app.exchange.files import lines, quoted
from app.exchange.json_text import json_lines
from app.exchange.results.lm_eval import is_sample, item_of, task_of
from app.exchange.results.recorded import LeftOut, Source


def write_form(items: Sequence[str], weights: Sequence[float], constant: float) -> bytes:
    """Write a form as CSV."""
    return lines(
        [("item", "weight"), ("", constant), *zip(map(quoted, items), weights, strict=True)]
    )


def lm_eval_run(items: Sequence[str], samples: Iterable[Source]) -> bytes:
    """Write settings for `lm_eval run --config` as JSON, which is valid YAML.

    Keys of items are task and `doc_hash`; the sample files give the numbers of the documents.

    Raises:
        FileFormatError: An item without a number in any file, or with different numbers.
    """
    wanted, numbers, names = set(items), dict[str, tuple[str, int, str]](), list[str]()
    for source in samples:
        names.append(source.name)
        task = task_of(source.file)
        for row, sample in json_lines(source.file):
            if isinstance(sample, LeftOut) or not is_sample(sample):
                continue
            if (item := item_of(task, sample)) not in wanted:
                continue
            place, number = f"{source.name}:{row}", sample.get("doc_id")
            if type(number) is not int or number < 0:
                raise FileFormatError(f"{place}: expected a number as doc_id, got {number!r:.80}.")
            known = numbers.setdefault(item, (task, number, place))
            # If a task asks a question twice, the first number is used for both.
            if known[1] != number and known[2].rpartition(":")[0] != source.name:
                raise FileFormatError(
                    f"{place}: expected doc_id {known[1]}, which {known[2]} gives to the same "
                    f"document, got {number}: give the samples of one run."
                )
    if missing := [item for item in items if item not in numbers]:
        raise FileFormatError(
            f"Expected a doc_id for each of {len(items)} items in samples of lm-eval, but "
            f"{len(missing)} items are in none of {len(names)} files "
            f"({', '.join(names)[:200]}), the first {missing[0]!r:.200}."
        )
    chosen: dict[str, list[int]] = {}
    for item in items:
        task, number, _ = numbers[item]
        chosen.setdefault(task, []).append(number)
    run = {
        "tasks": sorted(chosen),
        "samples": {task: sorted(chosen[task]) for task in sorted(chosen)},
        "log_samples": True,
        "output_path": "form",
    }
    return (json.dumps(run, ensure_ascii=False) + "\n").encode()

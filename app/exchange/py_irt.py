"""py-irt's files: recorded answers as JSON lines, and parameters of its 1PL to 4PL.

Each line has the answers of an examinee: `{"subject_id": "m1", "responses": {"q1": 1, "q2": 0}}`.
Items that a line does not name were not answered. Parameters are in `best_parameters.json`:

```json
{"irt_model": "3pl", "ability": [0.4], "diff": [-0.3], "disc": [1.2], "lambdas": [0.25],
 "item_ids": {"0": "q1"}, "subject_ids": {"0": "m1"}}
```

`diff` is b and `disc` is a. `lambdas` is the lower asymptote in a 3PL but the **upper** one in a
4PL, which has no lower one. The 2PL of releases before 0.7.1 wrote the logarithm of a as `disc`.

Source: py-irt's models/*_param_logistic.py and training.py.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from app.engine.bank import FloatArray, ItemBank
from app.engine.models.continuous import CONTINUOUS
from app.engine.responses import ResponseTable
from app.errors import FileFormatError, InvalidInputError, ItemBankError
from app.exchange.json_text import json_lines
from app.exchange.results.recorded import (
    FIRST_TRIAL,
    Choices,
    LeftOut,
    Source,
    TrialTable,
    score_or_reason,
    text_of,
)
from app.items import JsonValue


def is_examinee(row: Mapping[str, JsonValue]) -> bool:
    """Whether a JSON object is a line of such a file."""
    return "subject_id" in row and "responses" in row


def read_py_irt(source: Source, choices: Choices) -> Iterator[TrialTable | LeftOut]:
    """Answers of a file; null means no answer."""
    for row, line in json_lines(source.file):
        if isinstance(line, LeftOut):
            yield line
            continue
        examinee = text_of(line, "subject_id")
        responses = line.get("responses")
        if examinee is None or not isinstance(responses, dict):
            yield LeftOut(row, "unreadable", "expected subject_id and an object responses")
            continue
        if not responses:
            yield LeftOut(row, "no_answers", f"{examinee!r} answered nothing")
        times = Counter(item.strip() for item in responses)
        scores: dict[str, float] = {}
        for item, value in responses.items():
            score = score_or_reason(value, row, choices)
            if times[item.strip()] > 1:
                yield LeftOut(row, "ambiguous_name", f"{item!r} differs from another in blanks")
            elif isinstance(score, LeftOut):
                yield score._replace(detail=f"{item.strip()!r}: {score.detail}")
            else:
                scores[item.strip()] = score
        if scores:
            known = np.array([list(scores.values())])
            table = ResponseTable((examinee.strip(),), tuple(scores), known)
            yield TrialTable(FIRST_TRIAL, table, row)


def write_py_irt(table: ResponseTable) -> Iterator[bytes]:
    """Lines of a file with right and wrong answers, the only scores of py-irt's models.

    Raises:
        InvalidInputError: A score between 0 and 1; raised before the first line.
    """
    between = ~(np.isnan(table.scores) | (table.scores == 0) | (table.scores == 1))
    if between.any():
        i, j = np.argwhere(between)[0]
        raise InvalidInputError(
            "py-irt takes the scores 0 and 1; "
            f"{table.examinees[i]!r} has {table.scores[i, j]:g} on {table.items[j]!r}. "
            "Export csv or parquet."
        )
    return _lines(table)


def _lines(table: ResponseTable) -> Iterator[bytes]:
    for examinee, scores in zip(table.examinees, table.scores, strict=True):
        given = np.flatnonzero(~np.isnan(scores))
        responses = {table.items[j]: int(scores[j]) for j in given.tolist()}
        line = {"subject_id": examinee, "responses": responses}
        yield json.dumps(line, ensure_ascii=False).encode() + b"\n"


_MODELS = ("1pl", "2pl", "3pl", "4pl")


def read_py_irt_parameters(content: bytes, name: str) -> ItemBank:
    """Read the items of a file; its abilities are ignored.

    Raises:
        FileFormatError: Not py-irt's file, another model, or a 2PL whose `disc` is a logarithm.
        ItemBankError: Invalid item parameters.
    """
    file = _object(content, name)
    model = file.get("irt_model")
    if model not in _MODELS:
        raise FileFormatError(
            f"{name}: expected irt_model {', '.join(_MODELS)}, got {model!r:.40}."
        )
    diff = _numbers(file, "diff", name)
    keys = _names(file, len(diff), name)
    disc = np.ones_like(diff) if model == "1pl" else _numbers(file, "disc", name)
    asymptote = _numbers(file, "lambdas", name) if model in ("3pl", "4pl") else None
    for column, values in (("disc", disc), ("lambdas", asymptote)):
        if values is not None and len(values) != len(diff):
            raise FileFormatError(
                f"{name}: expected {len(diff)} numbers in {column} as in diff, got {len(values)}."
            )
    if model == "2pl" and (disc <= 0).any():
        first = int(np.argmax(disc <= 0))
        raise FileFormatError(
            f"{name}: disc of {keys[first]!r} is {disc[first]:g}, but py-irt's 2PL has slopes above"
            " 0: the file seems to hold logarithms, as releases before 0.7.1 wrote them. Write"
            " exp(disc), or fit again."
        )
    return ItemBank.from_difficulties(
        a=disc,
        b=diff,
        c=asymptote if model == "3pl" else None,
        d=asymptote if model == "4pl" else None,
        item_ids=keys,
    )


def write_py_irt_parameters(bank: ItemBank, b: FloatArray) -> bytes:
    """Write the bank as the smallest py-irt model with these parameters, without abilities.

    Raises:
        ItemBankError: Lower and upper asymptotes, which no py-irt model has together; items
            without difficulty; or continuous scores, which py-irt does not support.
    """
    if bank.model is CONTINUOUS:
        raise ItemBankError("py-irt knows no continuous scores: export csv or parquet.")
    if flat := [bank.item_ids[at] for at in np.flatnonzero(bank.a == 0)]:
        raise ItemBankError(
            f"py-irt files hold difficulties, which items with a = 0 do not have: {len(flat)} here,"
            f" the first is {flat[0]!r}. Export mirt, csv, parquet or jsonl."
        )
    lower, upper = bool(np.any(bank.c != 0)), bool(np.any(bank.d != 1))
    if lower and upper:
        guessed = int(np.argmax(bank.c != 0))
        capped = int(np.argmax(bank.d != 1))
        raise ItemBankError(
            "py-irt's 4PL has no lower asymptote and its 3PL no upper one; this bank has both:"
            f" {bank.item_ids[guessed]!r} has c = {bank.c[guessed]:g} and"
            f" {bank.item_ids[capped]!r} d = {bank.d[capped]:g}. Export csv or mirt."
        )
    if upper:
        model, asymptote = "4pl", bank.d
    elif lower or np.any(bank.a <= 0):  # its 2PL takes the slope as exp(x); its 3PL as it is
        model, asymptote = "3pl", bank.c
    else:
        model, asymptote = ("1pl" if np.all(bank.a == 1) else "2pl"), None
    file: dict[str, JsonValue] = {"irt_model": model, "ability": [], "diff": b.tolist()}
    if model != "1pl":
        file["disc"] = bank.a.tolist()
    if asymptote is not None:
        file["lambdas"] = asymptote.tolist()
    file["item_ids"] = {str(i): key for i, key in enumerate(bank.item_ids)}
    file["subject_ids"] = {}
    return (json.dumps(file, ensure_ascii=False) + "\n").encode()


def _object(content: bytes, name: str) -> Mapping[str, JsonValue]:
    try:
        file = json.loads(content)
    except (ValueError, RecursionError) as exc:
        raise FileFormatError(f"{name}: expected JSON as py-irt writes it, got {exc}.") from exc
    if not isinstance(file, dict):
        raise FileFormatError(f"{name}: expected a JSON object as py-irt writes it.")
    return file


def _numbers(file: Mapping[str, JsonValue], column: str, name: str) -> FloatArray:
    values = file.get(column)
    if not isinstance(values, list) or not values:
        raise FileFormatError(f"{name}: expected numbers in {column}, got {values!r:.40}.")
    for i, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int | float):
            hint = " (a multidimensional model)" if isinstance(value, list) else ""
            raise FileFormatError(
                f"{name}: expected numbers in {column}, got {value!r:.40} at {i}{hint}."
            )
    try:
        return np.array(values, dtype=np.float64)
    except OverflowError as exc:
        raise ItemBankError(f"{name}: {column} holds a number that is too large.") from exc


def _names(file: Mapping[str, JsonValue], n_items: int, name: str) -> list[str]:
    names = file.get("item_ids")
    wanted = [str(i) for i in range(n_items)]
    if not isinstance(names, dict) or set(names) != set(wanted):
        got = f"{len(names)}" if isinstance(names, dict) else f"{names!r:.40}"
        raise FileFormatError(
            f'{name}: expected item_ids from "0" to "{n_items - 1}", as many as diff, got {got}.'
        )
    keys = []
    for i in wanted:
        key = names[i]
        if not isinstance(key, str) or not key.strip():
            raise FileFormatError(f"{name}: expected the name of item {i}, got {key!r:.40}.")
        keys.append(key.strip())
    return keys

"""py-irt's `best_parameters.json`: parameters of its 1PL to 4PL.

```json
{"irt_model": "3pl", "ability": [0.4], "diff": [-0.3], "disc": [1.2], "lambdas": [0.25],
 "item_ids": {"0": "q1"}, "subject_ids": {"0": "m1"}}
```

`diff` is b and `disc` is a. `lambdas` is the lower asymptote in a 3PL but the **upper** one in a
4PL, which has no lower one. The 2PL of releases before 0.7.1 wrote the logarithm of a as `disc`.

Source: py-irt's models/*_param_logistic.py and training.py.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from app.engine.bank import DEFAULT_SCALE, FloatArray, ItemBank
from app.engine.models.continuous import CONTINUOUS
from app.errors import FileFormatError, ItemBankError

_MODELS = ("1pl", "2pl", "3pl", "4pl")


def read_py_irt_parameters(
    content: bytes, *, name: str = "parameters", scale: str = DEFAULT_SCALE
) -> ItemBank:
    """The items of a file; abilities are left aside.

    Raises:
        FileFormatError: No such file, another model, or a 2PL whose `disc` is a logarithm.
        ItemBankError: Numbers that are no item's.
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
        scale=scale,
    )


def write_py_irt_parameters(bank: ItemBank, b: FloatArray) -> bytes:
    """A file of the smallest py-irt model that has these parameters, without abilities.

    Args:
        bank: The items.
        b: Their difficulties as they are to be written.

    Raises:
        ItemBankError: A lower and an upper asymptote, which no model of py-irt has together, items
            without difficulty, or continuous scores, which it does not know.
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
    file: dict[str, Any] = {"irt_model": model, "ability": [], "diff": b.tolist()}
    if model != "1pl":
        file["disc"] = bank.a.tolist()
    if asymptote is not None:
        file["lambdas"] = asymptote.tolist()
    file["item_ids"] = {str(i): key for i, key in enumerate(bank.item_ids)}
    file["subject_ids"] = {}
    return (json.dumps(file, ensure_ascii=False) + "\n").encode()


def _object(content: bytes, name: str) -> Mapping[str, Any]:
    try:
        file = json.loads(content)
    except (ValueError, RecursionError) as exc:
        raise FileFormatError(f"{name}: expected JSON as py-irt writes it, got {exc}.") from exc
    if not isinstance(file, dict):
        raise FileFormatError(f"{name}: expected a JSON object as py-irt writes it.")
    return file


def _numbers(file: Mapping[str, Any], column: str, name: str) -> FloatArray:
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


def _names(file: Mapping[str, Any], n_items: int, name: str) -> list[str]:
    names = file.get("item_ids")
    wanted = [str(i) for i in range(n_items)]
    if not isinstance(names, dict) or set(names) != set(wanted):
        got = f"{len(names)}" if isinstance(names, dict) else f"{names!r:.40}"
        raise FileFormatError(
            f'{name}: expected item_ids from "0" to "{n_items - 1}", as many as diff, got {got}.'
        )
    for i in wanted:
        if not isinstance(names[i], str) or not names[i].strip():
            raise FileFormatError(f"{name}: expected the name of item {i}, got {names[i]!r:.40}.")
    return [names[i].strip() for i in wanted]

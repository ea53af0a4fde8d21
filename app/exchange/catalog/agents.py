"""Files of the tasks that agents solved: JSON lines, one line per agent.

`{"subject_id": "20250522_sweagent_claude-4-sonnet", "responses": {"task-1": 1, "task-2": 0}}`, with
optional `agent`, `model` and `date`. Reading is strict, as no hash of such a file is known.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import cast

import numpy as np
from numpy.typing import NDArray

from app.errors import InvalidInputError
from app.exchange.catalog.entry import Responses
from app.exchange.json_text import json_lines
from app.exchange.results.recorded import LeftOut, SourceFile
from app.items import JsonValue

_MAX_NAME = 512
#: Names of agents may begin with the day of their submission.
_DAY = re.compile(r"(\d{4})(\d\d)(\d\d)_")
#: After the day, a name may have a scaffold and a model, if that is unambiguous.
_SCAFFOLD_MODEL = re.compile(
    r"([^_]+)_((?:claude|deepseek|devstral|gemini|glm|gpt|grok|kimi|llama|o[134]-|qwen)[^_]*)", re.I
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """An agent of a file; facts that neither its fields nor its name tell are None.

    Attributes:
        score: Share of the tasks that the agent solved.
        day: ISO date of the agent's submission.
    """

    name: str
    score: float
    day: str | None
    model: str | None
    scaffold: str | None


@dataclass(frozen=True, slots=True, eq=False)
class Solved:
    """Agents and tasks in the order of the file, and 1 for each solved task, else 0."""

    agents: tuple[Agent, ...]
    tasks: tuple[str, ...]
    scores: NDArray[np.int8]


def read_agents(content: bytes, name: str, expected: Responses) -> Solved:
    """Read a file of the tasks that agents solved, as JSON lines.

    Raises:
        InvalidInputError: Not the expected file, or an answer is missing; the message says where.
    """
    tasks: dict[str, int] = {}
    agents: dict[str, Agent] = {}
    rows: list[NDArray[np.int8]] = []
    for number, fields in json_lines(SourceFile.of_bytes(name, content)):
        place = f"{name}, line {number}"
        if isinstance(fields, LeftOut):
            raise InvalidInputError(f"{place}: {fields.detail}.")
        agent, answers = _text(fields.get("subject_id")), fields.get("responses")
        if agent is None or not isinstance(answers, dict):
            raise InvalidInputError(f"{place}: expected a subject_id and an object `responses`.")
        if agent in agents:
            raise InvalidInputError(f"{place}: expected each subject_id once, got {agent!r} twice.")
        for task, value in answers.items():
            if _text(task) is None or type(value) is not int or value not in (0, 1):
                raise InvalidInputError(
                    f"{place}: expected 0 or 1 of each task, got {value!r:.80} of {task!r:.80}. "
                    "A file of single attempts cannot be used."
                )
        tasks = tasks or {task: column for column, task in enumerate(answers)}
        if answers.keys() != tasks.keys():
            other = min(answers.keys() ^ tasks.keys())
            raise InvalidInputError(
                f"{place}: expected the tasks of the first line, got more or fewer: {other!r:.80}."
            )
        row = np.array([answers[task] for task in tasks], np.int8)
        agents[agent] = _agent(agent, fields, float(row.mean()), place)
        rows.append(row)
    if len(tasks) != expected.tasks or len(agents) < expected.agents:
        raise InvalidInputError(
            f"{name}: expected {expected.tasks} tasks and at least {expected.agents} agents, got "
            f"{len(tasks)} and {len(agents)}."
        )
    return Solved(tuple(agents.values()), tuple(tasks), np.array(rows))


def _agent(name: str, fields: Mapping[str, JsonValue], score: float, place: str) -> Agent:
    given, told = fields.get("date"), _DAY.match(name)
    if given is None and told is not None:
        given = "-".join(told.groups())
    try:
        day = None if given is None else date.fromisoformat(cast(str, given)).isoformat()
    except (TypeError, ValueError):
        raise InvalidInputError(f"{place}: expected a date, got {given!r:.80}.") from None
    rest = name if told is None else name[told.end() :]
    parts = None if told is None else _SCAFFOLD_MODEL.fullmatch(rest)
    scaffold, model = parts.groups() if parts else (None, None)
    return Agent(
        name=name,
        score=score,
        day=day,
        model=_text(fields.get("model")) or model,
        scaffold=_text(fields.get("agent")) or scaffold,
    )


def _text(value: object) -> str | None:
    """A value that can be a name, else None."""
    if isinstance(value, str) and 0 < len(value.strip()) <= len(value) <= _MAX_NAME:
        return value
    return None

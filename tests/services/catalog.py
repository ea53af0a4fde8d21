"""A small catalogue entry with its files, for tests that install it."""

import hashlib
import json
from pathlib import Path

import numpy as np

ROWS = [{"q": f"What is {n} + {n}?", "a": f"{n} + {n} = {2 * n}"} for n in range(8)]
QUESTIONS = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
PARAMETERS = (
    "X,a1,d,g,u\n" + "".join(f"X{n},{1.5 if n < 6 else -1},{n / 4},0,1\n" for n in range(1, 7))
).encode()
_ENTRY = """
name = "small"
title = "Small"
licence = "MIT"
parameters_licence = "CC0"
[questions]
split = "test"
rows = 8
files = [{questions}]
[parameters]
items = 6
files = [{parameters}]
[join]
name = "X{{place}}"
order = "shuffled"
seed = 42
[item]
prompt = "{{q}}"
target = "{{a|after:=|strip}}"
scorer = "numeric"
free_instruction = ""
[few_shot]
number = 2
[asked]
mode = "generate"
shots = 2
unparsed = "wrong"
scorer = "numeric"
source = "made up"
"""


def write_entry(
    folder: Path,
    questions: str | None = None,
    parameters: str | None = None,
    answers: bool = False,
) -> Path:
    """Write an entry to a new folder; by default its sources are files beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    text = _ENTRY.format(
        questions=questions or f'{{file = "test.jsonl", sha256 = "{sha256(QUESTIONS)}"}}',
        parameters=parameters or f'{{file = "irt.csv", sha256 = "{sha256(PARAMETERS)}"}}',
    )
    if answers:
        text += '\n[[answers.files]]\nfile = "answers.csv"\n'
    (folder / "small.toml").write_text(text)
    return folder


def write_files(folder: Path) -> Path:
    """Write the files of the entry under their names."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "test.jsonl").write_bytes(QUESTIONS)
    (folder / "irt.csv").write_bytes(PARAMETERS)
    return folder


def agents_entry(source: str, *, tasks: int = 16, agents: int = 19) -> str:
    """Return an entry of agents."""
    return (
        'name = "agents"\ntitle = "Agents"\nlicence = "MIT"\nhomepage = "https://tasks.example"\n'
        f"[responses]\ntasks = {tasks}\nagents = {agents}\nfiles = [{source}]\n"
    )


def solved(n_agents: int = 19, n_tasks: int = 16) -> bytes:
    """Return lines of tasks solved by agents of six months; newer agents solve more."""
    rng = np.random.default_rng(5)
    hard = rng.normal(size=n_tasks)
    lines = []
    for agent in range(n_agents):
        right = rng.random(n_tasks) < 1 / (1 + np.exp(hard - agent / 6 + 2))
        answers = {f"task-{n}": int(one) for n, one in enumerate(right)}
        name = f"2026{agent % 6 + 1:02d}01_loop_gpt-{agent}"
        lines.append(json.dumps({"subject_id": name, "responses": answers}))
    return "\n".join(lines).encode()


def at(url: str, content: bytes, name: str) -> str:
    """Return a plain URL as a source."""
    return f'{{url = "{url}/plain/{name}", sha256 = "{sha256(content)}"}}'


def sha256(content: bytes) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(content).hexdigest()

"""Inspect tasks with 300 samples and a tool loop, whose samples Sextant selects.

Inspect runs them with its mock model, or with one behind an address. `python inspect_tasks.py` runs
the tasks given on standard input in turn and prints the contents of their logs.
"""

import asyncio
import hashlib
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

from inspect_ai import Task, eval_retry, task
from inspect_ai import eval as run_task
from inspect_ai.dataset import Sample
from inspect_ai.log import read_eval_log
from inspect_ai.model import ChatMessage, ChatMessageTool, Model, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, Scorer, Target, accuracy, match, scorer
from inspect_ai.solver import Generate, Solver, TaskState, generate, solver, use_tools
from inspect_ai.tool import Tool, tool

import sextant_inspect

N = 300


@tool
def calculator() -> Tool:
    async def execute(expression: str) -> str:
        """Evaluate a product.

        Args:
            expression: Two integers and an asterisk between them.
        """
        first, second = expression.split("*")
        return str(int(first) * int(second))

    return execute


def is_right(number: int) -> bool:
    """Return whether the answer is right, which is likelier for low numbers."""
    unit = int(hashlib.sha256(str(number).encode()).hexdigest(), 16) % 1000 / 1000
    return unit < 1 / (1 + math.exp(1.5 * (number / 100 - 2)))


class Examinee:
    """The mock model. It records its prompts, and hangs from a given number on."""

    def __init__(self) -> None:
        self._asked = Path(os.environ.get("EXAMINEE_ASKED", os.devnull))
        self._until = int(os.environ.get("EXAMINEE_UNTIL", "1000"))

    async def __call__(self, messages: list[ChatMessage], *_: Any) -> ModelOutput:
        first, second = (messages[0].text.split()[place].rstrip("?") for place in (2, 4))
        if not isinstance(messages[-1], ChatMessageTool):
            self._until -= 1
            if self._until < 0:
                await asyncio.Event().wait()
            with self._asked.open("a") as file:
                file.write(f"{first}\n")
            expression = {"expression": f"{first}*{second}"}
            output = ModelOutput.for_tool_call("mockllm", "calculator", expression)
        elif is_right(int(first)):
            output = ModelOutput.from_content("mockllm", messages[-1].text)
        else:
            output = ModelOutput.from_content("mockllm", "I do not know: 0")
        # Otherwise Inspect counts with a vocabulary that it downloads.
        output.usage = ModelUsage(
            input_tokens=30,
            output_tokens=5,
            total_tokens=42,
            input_tokens_cache_read=7,
            total_cost=0.25,
        )
        return output


def ten() -> Model:
    """Return a model that always says 10."""
    output = ModelOutput.from_content("mockllm", "10")
    output.usage = ModelUsage(input_tokens=9, output_tokens=1, total_tokens=10)
    return get_model("mockllm/model", custom_outputs=lambda *_: output)


@solver
def breaks(every: int) -> Solver:
    """Return a harness that fails on some samples."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        if int(str(state.sample_id)[1:]) % every == 0:
            raise RuntimeError("no sandbox")
        return state

    return solve


@scorer(metrics=[accuracy()])
def points(value: float | str | list[float] | dict[str, float]) -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        return Score(value=value)

    return score


@task
def arith(
    every: int = 1000,
    value: float | str | list[float] | dict[str, float] | None = None,
    samples: int = N,
    numbered: bool = False,
    agent: bool = False,
    **settings: Any,
) -> Task:
    """A task whose bank has 300 items, `m001` to `m300`, in order of difficulty.

    Args:
        every: The harness fails on each `every`-th sample.
        value: Score that a scorer gives to all samples.
        samples: Number of samples.
        numbered: Whether samples have no ids.
        agent: Agent that drives the model.
        settings: Settings of `adaptive`.
    """
    mocked = "EXAMINEE_MODEL" not in os.environ
    return sextant_inspect.adaptive(
        Task(
            dataset=[
                Sample(
                    id=None if numbered else f"m{number:03d}",
                    input=f"What is {number} * {number + 7}? Use the calculator.",
                    target=str(number * (number + 7)),
                )
                for number in range(1, samples + 1)
            ],
            solver=[breaks(every), use_tools(calculator()), generate()],
            scorer=match(numeric=True) if value is None else points(value),
            model=get_model("mockllm/model", custom_outputs=Examinee()) if mocked else None,
        ),
        **{
            "bank": "arith",
            "seed": 3,
            "examinee": sextant_inspect.Examinee(name="a", kind="agent") if agent else None,
            "stopping": {"se": 0.3, "min_items": 10, "max_items": 40},
            **settings,
        },
    )


def told(location: str) -> dict[str, Any]:
    """Return the contents of a log."""
    log = read_eval_log(location)
    results = log.results
    stops = results.early_stopping if results else None
    return {
        "status": log.status,
        "error": log.error.message if log.error else None,
        "metadata": log.eval.metadata,
        "task_id": log.eval.task_id,
        "figures": {name: metric.value for name, metric in results.scores[0].metrics.items()}
        if results and results.scores
        else {},
        "stopped": stops.metadata if stops else None,
        "samples": {str(sample.id): bool(sample.error) for sample in log.samples or ()},
        "tokens": sum(usage.total_tokens for usage in log.stats.model_usage.values()),
    }


if __name__ == "__main__":
    for run in json.load(sys.stdin):
        if "retry" in run:
            (log,) = eval_retry(run["retry"], display="none")
        else:
            what = {"tasks": arith(**run["task"])} if "task" in run else {"model": ten()}
            (log,) = run_task(**what, display="none", **run.get("eval", {}))
        print(json.dumps(told(log.location)), flush=True)

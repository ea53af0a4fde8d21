"""Tasks of Inspect, 300 samples with a tool loop each, that Sextant chooses from.

Run by Inspect itself, with its mock model or one behind an OpenAI-compatible address.
"""

import asyncio
import hashlib
import os
from typing import Any

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessage, ChatMessageTool, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import match
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import Tool, tool

from sextant_inspect import adaptive

N = 300


@tool
def calculator() -> Tool:
    async def execute(expression: str) -> str:
        """Evaluate a product.

        Args:
            expression: Two integers and a star between them.
        """
        first, second = expression.split("*")
        return str(int(first) * int(second))

    return execute


def is_right(number: int) -> bool:
    """Rather with low numbers."""
    unit = int(hashlib.sha256(str(number).encode()).hexdigest(), 16) % 1000 / 1000
    return unit < 1 / (1 + 2.718 ** (1.5 * ((number / 100 - 1.5) - 0.5)))


async def answer(messages: list[ChatMessage], *_: Any) -> ModelOutput:
    await asyncio.sleep(float(os.environ.get("EXAMINEE_TAKES_S", "0")))
    if asked := os.environ.get("EXAMINEE_ASKED"):
        with open(asked, "a") as file:
            file.write(f"{messages[0].text}\n")
    first, second = (messages[0].text.split()[place].rstrip("?") for place in (2, 4))
    if not isinstance(messages[-1], ChatMessageTool):
        expression = {"expression": f"{first}*{second}"}
        output = ModelOutput.for_tool_call("mockllm", "calculator", expression)
    elif is_right(int(first)):
        output = ModelOutput.from_content("mockllm", messages[-1].text)
    else:
        output = ModelOutput.from_content("mockllm", "I do not know: 0")
    # Without it Inspect counts by a vocabulary that it fetches.
    output.usage = ModelUsage(input_tokens=30, output_tokens=5, total_tokens=35)
    return output


@task
def arith(early_stopping: bool = False, max_items: int = 60) -> Task:
    mocked = os.environ.get("EXAMINEE") is None
    return adaptive(
        Task(
            dataset=[
                Sample(
                    id=f"m{number:03d}",
                    input=f"What is {number} * {number + 7}? Use the calculator.",
                    target=str(number * (number + 7)),
                )
                for number in range(1, N + 1)
            ],
            solver=[use_tools(calculator()), generate()],
            scorer=match(numeric=True),
            model=get_model("mockllm/model", custom_outputs=answer) if mocked else None,
        ),
        "arith",
        seed=3,
        early_stopping=early_stopping,
        stopping={"se": 0.3, "min_items": 10, "max_items": max_items},
    )

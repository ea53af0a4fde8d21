"""Make Sextant choose the samples of a task."""

from collections.abc import Callable
from dataclasses import replace

from inspect_ai import Task, task_with
from inspect_ai._eval.task.task import resolve_scorer_metrics  # there is no other way to add one
from inspect_ai.scorer._scorer import scorer_metrics, unique_scorer_name

from sextant_client import AsyncSextant, Examinee
from sextant_client.requests import Json
from sextant_inspect.attempts import USUALLY_IN_FLIGHT, Plan, figures
from sextant_inspect.matching import Samples
from sextant_inspect.stopping import SextantStopping

try:
    from sextant_inspect.source import SextantSource
except ImportError:  # Inspect before 0.3.250
    SextantSource = None  # type: ignore[assignment, misc]  # a class where it is


def adaptive(
    task: Task,
    bank: str,
    *,
    scorer: str | None = None,
    examinee: Examinee | None = None,
    early_stopping: bool = False,
    connect: Callable[[], AsyncSextant] = AsyncSextant,
    **design: Json,
) -> Task:
    """Let Sextant choose which samples of a task are run. Changes `task` and returns it.

    Args:
        task: A task with a scorer, whose samples are in the bank, by content or by id.
        bank: Name or id of the bank.
        scorer: Scorer whose score counts, as `scorer` or `scorer.key`; by default the first.
        examinee: The examinee who answers; by default the model.
        early_stopping: Start all samples and let each wait for its turn, as is necessary with
            Inspect before 0.3.250.
        connect: Creates the client; by default from SEXTANT_SERVER and SEXTANT_API_KEY.
        design: Fields of the session, such as `stopping`, `budget`, `concurrency` and `seed`.

    Raises:
        ValueError: The task has no such scorer, or two samples with the same id.
    """
    names: list[str] = []
    for one in task.scorer or ():
        names.append(unique_scorer_name(one, names))
    scorer = scorer or next(iter(names), "")
    wanted = scorer.partition(".")[0]
    if task.scorer is None or wanted not in names:
        raise ValueError(f"Expected a task with a scorer {wanted!r}, got {names or 'none'}.")
    counts = task.scorer[names.index(wanted)]
    # Sextant's figures come first: Inspect shows the first as the result.
    own = scorer_metrics(counts)
    resolve_scorer_metrics([counts], [figures(), *(own if isinstance(own, list) else [own])])
    samples = Samples.of(list(task.dataset))
    # Which errors are too many the session's `failures` say.
    fails = False if task.fail_on_error is None else task.fail_on_error
    plan = Plan(bank, samples, scorer, examinee, design, connect)
    if early_stopping or SextantSource is None:
        # There `max_samples` is how many wait.
        plan = replace(plan, design={"concurrency": USUALLY_IN_FLIGHT, **design})
        return task_with(task, early_stopping=SextantStopping(plan), fail_on_error=fails)
    return task_with(task, dataset=SextantSource(plan), fail_on_error=fails)

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from threading import Thread

import pytest

from app.items import Answer, ItemContent, Outcome, ScorerSpec
from app.scorers import NotScored, Scored, aclose, build, mark, marking
from app.scorers.confined import Failed, confined
from app.scorers.pattern import search

QUICK = partial(search, pattern="b", ignore_case=False, group=0, texts=["abc"])
HANGING = partial(QUICK, pattern=r"^(a+)+$", texts=["a" * 40 + "!"])
ITEM = ItemContent(prompt="?")


@pytest.fixture(autouse=True)
async def _ended() -> AsyncIterator[None]:
    yield
    await aclose()


async def test_work_that_hangs_ends_in_time_and_the_next_is_done() -> None:
    assert await confined(HANGING, timeout_s=0.2) == Failed("it takes more than 0.2 s")
    assert await confined(QUICK, timeout_s=60) == ["b"]


async def test_the_event_loop_goes_on_while_work_hangs() -> None:
    work = confined(HANGING, timeout_s=0.5)
    job = asyncio.create_task(work)
    turns = 0
    while not job.done():
        await asyncio.sleep(0)
        turns += 1
    assert isinstance(job.result(), Failed)
    assert turns > 100


async def test_only_long_answers_are_read_in_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lost(*_: object, **__: object) -> Failed:
        return Failed("it was lost", is_lost=True)

    monkeypatch.setattr(marking, "confined", lost)
    long, fine = "25 " * 1000, "25"
    for params, targets, text, kind in [
        ([fine], (fine,), "25 " * 100, Scored),
        ([fine], (fine,), long, NotScored),
        ([fine], (fine, long), fine, NotScored),
        ([fine, long], (fine,), fine, NotScored),
    ]:
        scorer = build(ScorerSpec("differential", {"incorrect": params}))
        item = ItemContent(prompt="?", target=targets)
        assert isinstance(await mark(scorer, item, Answer(text=text)), kind)


async def test_a_fault_of_a_library_is_a_failure_of_the_work() -> None:
    result = await confined(partial(QUICK, pattern="("), timeout_s=60)
    assert isinstance(result, Failed)
    assert "unterminated" in result.reason
    assert not result.is_lost


async def test_scorers_work_again_after_aclose() -> None:
    scorer = build(ScorerSpec("pattern", {"pattern": "b"}))
    for _ in range(2):
        assert isinstance(await mark(scorer, ITEM, Answer(text="abc")), Scored)
        await aclose()


def test_scorers_work_off_the_main_thread_and_on_any_loop() -> None:
    item = ItemContent(prompt="?", target=(r"2\sqrt{3}",))
    results = []

    def work() -> None:
        answer = Answer(text=r"\boxed{\sqrt{12}}")
        results.append(asyncio.run(mark(build(ScorerSpec("numeric")), item, answer)))

    threads = [Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [r.score for r in results if isinstance(r, Scored)] == [1.0] * 2


async def test_a_hung_formula_does_not_hold_up_other_answers() -> None:
    scorer = build(ScorerSpec("numeric", {"timeout_s": 2.0}))
    item = ItemContent(prompt="?", target=("25",))
    texts = ["The answer is 9**9**9**9", "25", "The answer is 5*5"]
    marks = await asyncio.gather(*(mark(scorer, item, Answer(text=t)) for t in texts))
    assert isinstance(marks[0], NotScored)
    assert marks[0].outcome is Outcome.UNPARSED
    assert "it takes more than 2 s" in marks[0].reason
    assert [m.score for m in marks[1:] if isinstance(m, Scored)] == [1.0, 1.0]

"""Likelihoods of options, compared with log-probabilities of a model that are read one by one."""

import asyncio
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.adapters.base import EndpointConfig
from app.adapters.likelihood import (
    LikelihoodRequest,
    PromptToken,
    ShowsRequests,
    TellsLikelihoods,
    continuation_logprob,
    most_tokens,
    of_completions,
)
from app.adapters.registry import build
from app.adapters.transport import Transport
from app.errors import MalformedAnswerError, NoLikelihoodsError
from tests.contracts.examinees import SECRET, ExamineeOf
from tests.servers import serving
from tests.servers.echo_llama import EchoLlama

WORDS = ("Ada", "the", "bird", "there", "is", "A", "cat", "naïve", "größer", "C", "日本", "that")


Teller = Callable[[str, str], TellsLikelihoods]


@pytest.fixture(scope="module")
def echo(llama_url: str) -> Iterator[tuple[EchoLlama, str]]:
    server = EchoLlama(llama_url, SECRET)
    with serving(server.app) as url:
        yield server, url
    server.close()


@pytest.fixture
def teller(echo: tuple[EchoLlama, str], transport: Transport) -> Teller:
    echo[0].calls.clear()

    def make(kind: str, behaviour: str) -> TellsLikelihoods:
        route = f"/{behaviour}/v1" if kind == "openai_completions" else f"/{behaviour}"
        config = EndpointConfig(kind=kind, base_url=echo[1] + route, model="tiny", timeout_s=60.0)
        examinee = build(config, transport)
        assert isinstance(examinee, TellsLikelihoods)
        return examinee

    return make


def reference(server: EchoLlama, request: LikelihoodRequest) -> tuple[float, int]:
    """Return the sum over the tokens that hold bytes of the continuation, and their number."""
    context, text = request.context, request.context + request.continuation
    ids, pieces = zip(*server.tokens(text), strict=True)
    sizes = [len(piece.encode() if isinstance(piece, str) else piece) for piece in pieces]
    assert sum(sizes) == len(text.encode())
    n_tokens = int((np.cumsum(sizes) > len(context.encode())).sum())
    return math.fsum(server.logprobs([*ids])[-n_tokens:]), n_tokens


def items(n: int, seed: int) -> list[list[LikelihoodRequest]]:
    """Return questions with options; some options start inside a token or a character."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(n):
        question = " ".join(rng.choice(WORDS, 3))
        context, gap = [
            (f"{question}:", " "),
            (f"{question} t", ""),  # "t" + "he" becomes the token "the"
            (f"{question} ", ""),  # " " + "A" becomes the token " A"
            (f"{question} ö", ""),
        ][number % 4]
        options = {
            gap + ("he " if number % 4 == 1 else "") + " ".join(rng.choice(WORDS, k))
            for k in (1, 1, 2)
        }
        made.append([LikelihoodRequest(context=context, continuation=o) for o in sorted(options)])
    return made


async def compare(
    teller: TellsLikelihoods, server: EchoLlama, asked: list[list[LikelihoodRequest]]
) -> None:
    for options in asked:
        ours = await asyncio.gather(*map(teller.likelihood, options))
        theirs = [reference(server, option) for option in options]
        for our, (logprob, n_tokens) in zip(ours, theirs, strict=True):
            assert our.n_tokens == n_tokens
            assert our.logprob == pytest.approx(logprob, abs=1e-3)
        lengths = [len(option.continuation.strip().encode()) for option in options]
        for sizes in (np.ones(len(options)), lengths):
            mine = np.argmax([our.logprob / n for our, n in zip(ours, sizes, strict=True)])
            assert mine == np.argmax([t[0] / n for t, n in zip(theirs, sizes, strict=True)])


@pytest.mark.parametrize(
    ("kind", "behaviour"),
    [("openai_completions", "vllm"), ("openai_completions", "vllm_only"), ("hf_tgi", "tgi")],
)
async def test_sums_match_the_real_model_token_by_token(
    teller: Teller, echo: tuple[EchoLlama, str], kind: str, behaviour: str
) -> None:
    await compare(teller(kind, behaviour), echo[0], items(8, seed=1))


@pytest.mark.slow
async def test_on_many_items_the_same_options_are_chosen(
    teller: Teller, echo: tuple[EchoLlama, str]
) -> None:
    await compare(teller("openai_completions", "vllm"), echo[0], items(120, seed=2))


@pytest.mark.parametrize("behaviour", ["vllm_only", "no_echo"])
async def test_a_server_without_echo_is_asked_its_own_way_from_then_on(
    teller: Teller, echo: tuple[EchoLlama, str], behaviour: str
) -> None:
    examinee = teller("openai_completions", behaviour)
    assert isinstance(examinee, ShowsRequests)
    request = LikelihoodRequest(context="One, two,", continuation=" three")
    exact = examinee.exact(request)
    for _ in range(2):
        await examinee.likelihood(request)
    assert examinee.exact(request) == exact  # cached answers are found by it
    ways = [{"echo", "prompt_logprobs"} & call.keys() for call in echo[0].calls]
    assert ways == [{"echo"}, {"prompt_logprobs"}, {"prompt_logprobs"}]


@pytest.mark.parametrize(
    ("kind", "behaviour"),
    [("openai_completions", "ignores"), ("openai_completions", "refuses"), ("hf_tgi", "ignores")],
)
async def test_an_endpoint_without_prompt_logprobs_gives_one_sentence(
    teller: Teller, kind: str, behaviour: str
) -> None:
    examinee = teller(kind, behaviour)
    with pytest.raises(NoLikelihoodsError, match="no log-probabilities of a prompt") as refused:
        await examinee.likelihood(LikelihoodRequest(context="A:", continuation=" b"))
    assert "mode 'generate'" in refused.value.detail
    assert not refused.value.retryable


async def test_llama_cpp_itself_has_none_and_says_so(llama_url: str, transport: Transport) -> None:
    config = EndpointConfig(
        kind="openai_completions", base_url=f"{llama_url}/v1", model="tiny", api_key=SECRET
    )
    examinee = build(config, transport)
    assert isinstance(examinee, TellsLikelihoods)
    with pytest.raises(NoLikelihoodsError):
        await examinee.likelihood(LikelihoodRequest(context="A:", continuation=" b"))


def tokens(*texts: str) -> list[PromptToken]:
    """Return tokens with log-probabilities -1, -2, -4, ..., so that a sum shows which counted."""
    return [PromptToken(text, -(2.0**at) if at else None) for at, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("shown", "context", "continuation", "counted"),
    [
        (["<s>", "Q", ":", " Pa", "ris"], "Q:", " Paris", [3, 4]),
        (["Q", ":", "▁Pa", "ris"], "Q:", " Paris", [2, 3]),
        (["Q", ":", "Pa", "ris"], "Q:", " Paris", [2, 3]),
        (["Q", "ĊA", "ĠB"], "Q\nA", " B", [2]),
        (["a", " t", "he", " end"], "a th", "e end", [2, 3]),
        (["a", "�", "�", "b"], "aö", "b", [3]),
        (["a", "�", "�", "�", "�"], "aö", "ü", [3, 4]),
        (["a", "ö", "�", "�"], "aö", "ü", [2, 3]),
        (["a", "�", "�"], "aö", "日", [1, 2]),
        (["x", " ha", " ha"], "x ha", " ha", [2]),
    ],
)
def test_the_tokens_that_hold_a_part_of_the_option_count(
    shown: list[str], context: str, continuation: str, counted: list[int]
) -> None:
    request = LikelihoodRequest(context=context, continuation=continuation)
    logprob, n_tokens = continuation_logprob(tokens(*shown), request)
    assert (logprob, n_tokens) == (-sum(2.0**at for at in counted), len(counted))


@pytest.mark.parametrize(
    "shown",
    [["Q", ":", " Lima"], ["ris"], ["Q", ":", " Pa", "ris", "</s>"], [" Paris"]],
    ids=["others", "too few", "one behind", "without log-probability"],
)
def test_tokens_of_another_text_are_never_summed(shown: list[str]) -> None:
    request = LikelihoodRequest(context="Q:", continuation=" Paris")
    with pytest.raises(ValueError, match=r"shows|no log-probability"):
        continuation_logprob(tokens(*shown), request)


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs", "Zs", "Cc"]), min_size=1), min_size=2),
    st.data(),
)
def test_a_text_cut_anywhere_counts_the_part_after_the_cut(
    parts: list[str], data: st.DataObject
) -> None:
    if any("�" in part or part.startswith(("bytes:", "<0x")) for part in parts):
        return
    text = "".join(parts)
    seam = data.draw(st.integers(len(parts[0]), len(text) - 1))
    shown = [PromptToken(part, -1.0) for part in parts]
    ends = np.cumsum([len(part) for part in parts])
    request = LikelihoodRequest(context=text[:seam], continuation=text[seam:])
    _, n_tokens = continuation_logprob(shown, request)
    assert n_tokens == int((ends > seam).sum())


def test_no_more_tokens_are_read_than_a_prompt_can_have() -> None:
    request = LikelihoodRequest(context="Q:", continuation=" é")
    flood: Any = {"logprobs": {"tokens": ["x"] * 10_000, "token_logprobs": [-1.0] * 10_000}}
    found = of_completions(flood, most_tokens(request))
    assert found is not None
    assert len(found) < 100


@pytest.mark.parametrize(
    ("tokens", "usage", "logprob"),
    [
        (["Q", ":", " Lima", " Lima"], {"prompt_tokens": 3, "completion_tokens": 1}, -0.5),
        (["Q", ":", " Lima", " Lima"], {"prompt_tokens": 4, "completion_tokens": 1}, -0.5),
        (["Q", ":", " Lima", ""], {"prompt_tokens": 4, "completion_tokens": 1}, -0.5),
        (["Q", ":", " Lima"], {"prompt_tokens": 4, "completion_tokens": 0}, -0.5),
        (["Q", ":", " Lima", " Lima"], {"prompt_tokens": 3}, -0.5),
        (["Q", ":", " Lima", " Lima"], {}, -0.5),
        ([" Lima"], {"prompt_tokens": 3, "completion_tokens": 1}, None),
    ],
)
async def test_a_written_token_like_the_options_last_is_not_taken_for_it(
    examinee_of: ExamineeOf,
    faults: Any,
    tokens: list[str],
    usage: dict[str, int],
    logprob: float | None,
) -> None:
    given = [-9.0] if len(tokens) == 1 else [None, -1.0, -0.5, -9.0][: len(tokens)]
    logprobs = {"tokens": tokens, "token_logprobs": given}
    body = {"choices": [{"text": "Q: Lima Lima", "logprobs": logprobs}], "usage": usage}
    examinee = examinee_of("openai_completions", faults.canned("written", body))
    assert isinstance(examinee, TellsLikelihoods)
    asked = examinee.likelihood(LikelihoodRequest(context="Q:", continuation=" Lima"))
    if logprob is None:
        with pytest.raises(NoLikelihoodsError):
            await asked
    else:
        assert (await asked).logprob == logprob


async def test_tokens_that_are_not_the_prompts_are_a_malformed_answer(
    examinee_of: ExamineeOf, faults: Any
) -> None:
    body = {
        "choices": [
            {
                "text": "Q: Lima!",
                "logprobs": {"tokens": ["Q", ":", " Rom"], "token_logprobs": [None, -1.0, -1.0]},
            }
        ],
        "usage": {"prompt_tokens": 3},
    }
    examinee = examinee_of("openai_completions", faults.canned("others", body))
    assert isinstance(examinee, TellsLikelihoods)
    with pytest.raises(MalformedAnswerError, match="shows a token ' Rom'"):
        await examinee.likelihood(LikelihoodRequest(context="Q:", continuation=" Lima"))

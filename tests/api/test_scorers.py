"""Scorers over HTTP: the list of scorers, and trials."""

from typing import Any

from app.demo.model_server import create_model_server
from tests.api.calls import got, listing, posted, problem_of
from tests.api.conftest import Client, NewClient
from tests.servers import serving

ITEM = {"prompt": "2 + 2 = ?", "target": ["4"]}


async def test_every_scorer_is_listed_with_the_schema_of_its_parameters(client: Client) -> None:
    listed = await listing(client, "/v1/scorers")
    assert {"exact", "choice", "numeric", "pattern", "includes"} <= {s["name"] for s in listed}
    for scorer in listed:
        assert scorer["params"]["type"] == "object"
        assert await got(client, f"/v1/scorers/{scorer['name']}") == scorer


TRIALS: list[tuple[dict[str, Any], str, float | None]] = [
    ({"item": ITEM, "answer": "4"}, "scored", 1.0),
    ({"item": ITEM, "answer": "The answer is 5."}, "scored", 0.0),
    ({"item": ITEM, "answer": "4", "finish": "length"}, "truncated", None),
    ({"item": ITEM, "answer": "no idea"}, "unparsed", None),
    ({"item": {**ITEM, "target": "4"}, "answer": "4"}, "scored", 1.0),
]


async def test_a_trial_scores_like_a_session(client: Client) -> None:
    for body, outcome, score in TRIALS:
        response = await posted(client, "/v1/scorers/numeric:test", body, 200)
        assert (response["outcome"], response["score"]) == (outcome, score)


async def test_unknown_scorers_and_wrong_parameters_are_clear_problems(client: Client) -> None:
    assert (await client.get("/v1/scorers/numerical")).status_code == 404
    trial = {"item": ITEM, "answer": "4"}
    assert (await client.post("/v1/scorers/numerical:test", json=trial)).status_code == 404
    misspelt = trial | {"params": {"tolerence": 1}}
    await problem_of(client, "/v1/scorers/numeric:test", misspelt, at="/params/tolerence")
    number = {"item": {**ITEM, "target": 4}, "answer": "4"}
    says = "/item/target/0: expected a text, got a number"
    await problem_of(client, "/v1/scorers/numeric:test", number, says=says)


async def test_a_judge_is_called_for_keys_that_run(client: Client, client_with: NewClient) -> None:
    with serving(create_model_server(theta=0, seed=1)) as url:
        endpoint = {
            "name": "judge", "kind": "openai_chat", "base_url": f"{url}/v1",
            "model": "sextant-judge", "price": {"input_per_1m": 1.0},
        }  # fmt: skip
        await posted(client, "/v1/endpoints", endpoint)
        trial = {"item": ITEM, "answer": "4", "params": {"judges": ["judge"]}}
        marked = await posted(client, "/v1/scorers/judge:test", trial, 200)
        reader = await client_with("read")
        await problem_of(reader, "/v1/scorers/judge:test", trial, 403, "missing_scope")

    assert (marked["score"], marked["marking"]["usage"]["calls"]) == (1.0, 1)
    missing, says = {"params": {"judges": ["nobody"]}}, "'nobody', which is not there"
    await problem_of(client, "/v1/scorers/judge:test", trial | missing, says=says)

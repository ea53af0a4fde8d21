"""Banks from recorded results over HTTP: recorded prompts, answers, calibration, version."""

import gzip
import io
import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import httpx2
import numpy as np
import pyarrow as pa
import pytest
from fastapi import FastAPI
from pyarrow import parquet

from app.acting import Acting, acting_for
from app.cli.bank import sent_results
from app.services.container import Services
from sextant_client import AsyncSextant
from tests.api.calls import deleted, edited, got, listing, posted, problem_of, refusal_of
from tests.api.conftest import BASE_URL, Client, NewClient
from tests.exchange.lm_eval_files import folders, sources
from tests.services.calibrations import run

pytestmark = pytest.mark.usefixtures("fits_here")

URL = "/v1/banks:from-results"
COMPLETIONS = {"kind": "openai_completions", "base_url": "http://127.0.0.1:9/v1", "model": "m"}


async def begun(client: Client, files: Mapping[str, str], **settings: Any) -> dict[str, Any]:
    sent = [
        {"name": name, "content_base64": b64encode(gzip.compress(text.encode())).decode()}
        if name.endswith("jsonl")
        else {"name": name, "content": text}
        for name, text in files.items()
    ]
    body = {"name": "made", "files": sent, "model": "1pl", "report_card": False, **settings}
    reply = await client.post(URL, json=body)
    assert reply.status_code == 202, reply.text
    found: dict[str, Any] = reply.json()
    if found["calibration"]:
        assert reply.headers["location"] == f"/v1/calibrations/{found['calibration']['id']}"
    return found


async def published(app: FastAPI, client: Client, calibration: dict[str, Any]) -> dict[str, Any]:
    """Run a worker and return the version it makes of a calibration."""
    services: Services = app.state.services
    assert calibration["publishes"]
    await run(services, calibration["id"])
    done = await got(client, f"/v1/calibrations/{calibration['id']}")
    assert done["publication_failure"] is None
    assert done["bank_version_id"], done["failure"]
    version: dict[str, Any] = await got(
        client, f"/v1/banks/{done['bank_id']}/versions/{done['bank_version_id']}"
    )
    return version


async def sent(client: Client, item: str, endpoint: Mapping[str, Any] = COMPLETIONS) -> list[Any]:
    """Return what a session would send for an item."""
    body = {"endpoint": endpoint, "send": False}
    items = await listing(client, "/v1/banks/made/items?limit=100")
    (item_id,) = [each["id"] for each in items if each["key"] == item]
    reply = await posted(client, f"/v1/banks/made/items/{item_id}:preview", body, 200)
    return [request["body"] for request in reply["requests"]]


def rows_of(files: Mapping[str, str], task: str) -> list[dict[str, Any]]:
    first = next(text for name, text in files.items() if f"samples_{task}_" in name)
    return [json.loads(line) for line in first.splitlines()]


async def test_written_answers_make_a_bank_of_the_recorded_words(
    client: Client, app: FastAPI
) -> None:
    files = folders(24, 14)
    found = await begun(client, files)
    assert (found["questions"], found["models"], found["stopped"]) == (14, 24, None)
    assert found["marking"]["scorer"] == "extract"
    shares = found["marking"]["agreement"]
    assert (shares["right"], shares["wrong"], found["marking"]["n_differing"]) == (1.0, 1.0, 0)
    assert min(shares["n_right"], shares["n_wrong"]) > 50
    (choice,) = [choice for choice in found["choices"] if choice["what"] == "filter"]
    assert (choice["taken"], choice["others"]) == ("strict-match", ["flexible-extract"])
    assert choice["option"] == "--filter"
    assert [c["option"] for c in found["choices"] if c["what"] == "prompt_form"] == ["--kind"]
    assert found["n_files"] == 24

    version = await published(app, client, found["calibration"])

    assert version["has_content"]
    asked = version["knowledge"]["asked"]
    assert (asked["mode"], asked["shots"]) == ("generate", 1)
    assert version["knowledge"]["unparsed_policy"] == "wrong"
    for row in rows_of(files, "sums")[:3]:
        request = row["arguments"]["gen_args_0"]
        (body,) = await sent(client, f"sums/{row['doc_hash']}")
        assert body["prompt"].encode() == request["arg_0"].encode()
        assert body["stop"] == request["arg_1"]["until"]
    session = await posted(client, "/v1/sessions", {"bank": "made", "endpoint": COMPLETIONS}, 202)
    assert session["asked"]["caution"] is None

    # The bank is shared with its knowledge, without the records it was made from.
    await client.post("/v1/projects", json={"name": "other"})
    await edited(client, "/v1/banks/made", shared=True)
    there = {"Sextant-Project": "other"}
    for path, answer in (
        ("report", 200),
        ("bundle", 200),
        ("drift?response_set=made", 404),
        ("join?response_set=made", 404),
    ):
        seen = await client.get(f"/v1/banks/made/versions/1/{path}", headers=there)
        assert seen.status_code == answer, seen.text
    loaded = await app.state.services.versions.load(version["id"])
    with acting_for(Acting((await got(client, "/v1/projects/other"))["id"])):
        errors = await app.state.services.versions.curve_errors(loaded)
        assert np.isfinite(errors[loaded.bank.a > 0.0]).all()
    made = f"/v1/calibrations/{found['calibration']['id']}"
    assert (await client.get(made, headers=there)).status_code == 404


async def test_compared_options_make_a_bank_that_compares(client: Client, app: FastAPI) -> None:
    files = folders(8, 12, tasks=["colours"])
    found = await begun(client, files)
    assert found["asked"]["mode"] == "loglikelihood"
    assert found["asked"]["normalise"] == "characters"  # as acc_norm, not bytes
    version = await published(app, client, found["calibration"])
    assert version["knowledge"]["asked"]["normalise"] == "characters"
    for row in rows_of(files, "colours")[:3]:
        bodies = await sent(client, f"colours/{row['doc_hash']}")
        assert [body["prompt"] for body in bodies] == [
            request["arg_0"] + request["arg_1"] for request in row["arguments"].values()
        ]
    session = await client.post("/v1/sessions", json={"bank": "made", "endpoint": COMPLETIONS})
    assert session.json()["asked"]["caution"] is None


async def test_too_few_models_stop_and_more_continue(client: Client, app: FastAPI) -> None:
    files = folders(8, 12)
    few = dict(list(files.items())[:4])
    found = await begun(client, few)
    assert found["calibration"] is None
    assert "2 models are too few to calibrate: 3 are needed, 1 more." in found["stopped"]
    assert "--provisional" in found["stopped"]
    assert (await got(client, "/v1/banks/made"))["latest_version"] is None
    again = await begun(client, files)
    assert (again["questions"], again["known_questions"], again["models"]) == (0, 12, 8)
    underway = await begun(client, files)
    assert underway["calibration"]["id"] == again["calibration"]["id"]
    assert (await published(app, client, again["calibration"]))["number"] == 1


async def test_results_without_anything_new_make_no_version(client: Client, app: FastAPI) -> None:
    files = folders(8, 12)
    first, rest = dict(list(files.items())[:12]), dict(list(files.items())[12:])
    found = await begun(client, first)
    version = await published(app, client, found["calibration"])
    await posted(client, "/v1/calibrations", {"response_set": "made", "model": "3pl"}, 202)
    for known in (first, dict(list(first.items())[:6])):
        again = (await begun(client, known))["calibration"]
        assert again["id"] == found["calibration"]["id"]
        assert again["bank_version_id"] == version["id"]
    other = await begun(client, first, model="2pl")
    assert (await published(app, client, other["calibration"]))["number"] == 2
    back = await begun(client, first)  # the latest version has another model
    assert (await published(app, client, back["calibration"]))["number"] == 3
    more = await begun(client, rest)
    assert (await published(app, client, more["calibration"]))["number"] == 4


async def test_token_counts_of_more_models_change_no_question(client: Client) -> None:
    def log(model: str, written: int) -> str:
        turns = [
            {"role": "user", "content": "1 + 1?"},
            {"role": "assistant", "content": "2", "model": model},
        ]
        usage = {"input_tokens": 7, "output_tokens": written}
        sample = {"id": 1, "epoch": 1, "target": "2", "messages": turns}
        sample["output"] = {"completion": "2", "usage": usage}
        sample["scores"] = {"match": {"value": "C"}}
        header = {"task": "sums", "model": model}
        return json.dumps({"status": "success", "eval": header, "samples": [sample]})

    await begun(client, {"a.json": log("a", 4)})
    again = await begun(client, {"a.json": log("a", 4), "b.json": log("b", 90)})
    assert (again["questions"], again["known_questions"]) == (0, 1)
    (item,) = await listing(client, "/v1/banks/made/items")
    assert item["expected_tokens"] == {"in": 7, "out": 4}


async def test_questions_exclude_answers_written_by_their_author(client: Client) -> None:
    files = dict(list(folders(8, 12).items())[:2])
    found = await begun(client, files, questions_only=True)
    assert (found["questions"], found["models"], found["response_set"]) == (12, 0, None)
    assert (found["calibration"], found["incomplete_models"]) == (None, 0)
    assert [one["reason"] for one in found["skipped"]] == ["other_filter"]
    assert "no answers" in found["stopped"]
    # As where the first row of a file is damaged.
    damaged = {
        name: f"oops\n{text}" if "/samples_" in name else text for name, text in files.items()
    }
    again = await begun(client, damaged, questions_only=True)
    told = {one["reason"]: one["count"] for one in again["skipped"]}
    assert told["unreadable"] == 1
    assert (await client.get("/v1/response-sets/made")).status_code == 404
    row = rows_of(files, "sums")[0]
    (body,) = await sent(client, f"sums/{row['doc_hash']}")
    assert body["prompt"] == row["arguments"]["gen_args_0"]["arg_0"]
    # Answers of real models continue from there.
    again = await begun(client, folders(8, 12))
    assert (again["questions"], again["known_questions"], again["models"]) == (0, 12, 8)


async def test_a_version_that_cannot_be_made_is_told(client: Client, app: FastAPI) -> None:
    found = await begun(client, folders(8, 12))
    services: Services = app.state.services
    await deleted(client, "/v1/banks/made")
    await run(services, found["calibration"]["id"])
    url = f"/v1/calibrations/{found['calibration']['id']}"
    done = await got(client, url)
    assert (done["status"], done["bank_version_id"]) == ("completed", None)
    assert done["publication_failure"]["detail"]
    await posted(client, f"{url}:publish", {"bank": "elsewhere"}, 201)
    assert (await got(client, url))["publication_failure"] is None


def _row(**fields: Any) -> str:
    row = {"doc_id": 0, "doc": {"q": 1}, "target": "4", "resps": [["4"]], "exact_match": 1.0}
    return json.dumps(
        {**row, "arguments": {"gen_args_0": {"arg_0": "2+2=", "arg_1": {}}}, **fields}
    )


NAME = "m/samples_t_2026-11-20T10-00-00.jsonl"
#: Nineteen of twenty are right, and no recorded answer shows which one is wrong.
MOSTLY_RIGHT = {
    NAME.replace("m/", f"m{n}/"): _row(exact_match=float(n > 0), metrics=["exact_match"])
    for n in range(20)
}


NO_BANKS: list[tuple[dict[str, str], dict[str, Any], str]] = [
    ({"scores.csv": "model,q1,q2\na,1,0\nb,0,1\n"}, {}, "none: a bank needs its questions"),
    ({"notes.jsonl": "no JSON\n"}, {}, "; row 1: expected a JSON object: "),
    ({"scores.csv": ""}, {}, "scores.csv: the file is empty"),
    ({NAME: _row(arguments=None)}, {}, "it has no `arguments`, which say what was asked"),
    (
        {NAME: _row(arguments={"gen_args_0": {"arg_0": "The", "arg_1": " end"}})},
        {},
        "it asks how likely one text is",
    ),
    (
        {NAME: _row(resps=[["no idea"]], metrics=["exact_match"])},
        {},
        "No scorer reproduces at least 90 % of the recorded scores",
    ),
    (MOSTLY_RIGHT, {}, "numeric 100.0 % of 19 right and 0.0 % of 1 wrong; exact"),
    ({NAME: _row(resps=[[" "]])}, {}, "The results hold no answers in words"),
    ({NAME: _row()}, {"prompts_of": "nobody"}, "prompts_of: expected one of the 1 models"),
    ({NAME: _row()}, {"tasks": ["other*"]}, "got none (no rows of the task other*)"),
    ({NAME: _row(target="")}, {}, "it has no right answer"),
    ({NAME: "{broken"}, {}, "; row 1: expected a JSON object: "),
    ({NAME: _row()}, {"default_scorer": {"name": "nonsense"}}, "nonsense"),
]


async def test_unusable_results_give_one_sentence_and_no_bank(client: Client) -> None:
    for files, wanted, words in NO_BANKS:
        sent = [{"name": name, "content": text} for name, text in files.items()]
        reply = await client.post(URL, json={"name": "made", "files": sent, **wanted})
        assert reply.status_code in (400, 422), (wanted, reply.text)
        assert words in reply.json()["detail"]
        assert await listing(client, "/v1/banks") == []
        assert await listing(client, "/v1/response-sets") == []


async def test_a_given_scorer_is_used_and_its_differences_are_reported(client: Client) -> None:
    found = await begun(client, MOSTLY_RIGHT, default_scorer={"name": "numeric"})
    assert found["marking"]["agreement"]["words"] == "100.0 % of 19 right and 0.0 % of 1 wrong"
    assert (found["marking"]["n_differing"], len(found["marking"]["differing"])) == (1, 1)


async def test_files_beyond_one_request_go_to_a_server_in_parts(
    client: Client, app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = []

    async def sent(request: httpx2.Request) -> None:
        files = json.loads(request.content)["files"]
        parts.append(sum(len(file["content_base64"]) for file in files))

    client.event_hooks["request"].append(sent)
    monkeypatch.setattr(sent_results, "_PART", 16_000)
    monkeypatch.setattr(sent_results, "_PIECE", 16_000)  # every file is sent in several pieces
    server, files = AsyncSextant(BASE_URL, "", http=client), folders(12, 14)
    settings: dict[str, Any] = {"model": "1pl", "report_card": False, "publish": True}
    body = {"name": "made", **settings}
    found: Any = await sent_results.send(server, sources(files), body)
    client.event_hooks["request"].clear()

    assert len(parts) > 5
    assert max(parts) < 24_000
    assert (found["questions"], found["known_questions"], found["models"]) == (14, 0, 12)
    assert found["asked"]["source"].endswith("12 models")
    assert found["response_set"]["n_answers"] == 12 * 14
    assert (found["marking"]["scorer"], found["asked"]["shots"]) == ("extract", 1)
    version = await published(app, client, found["calibration"])
    assert version["knowledge"]["asked"]["source"] == found["asked"]["source"]


async def test_a_session_with_other_sampling_settings_says_so(client: Client) -> None:
    settings = {"max_gen_toks": 256, "temperature": 0.7}
    request = {"gen_args_0": {"arg_0": "2+2=", "arg_1": settings}}
    found = await begun(client, {NAME: _row(arguments=request)}, publish=False)
    assert (found["asked"]["max_tokens"], found["asked"]["temperature"]) == (256, 0.7)
    (item,) = await listing(client, "/v1/banks/made/items")
    asked = {name: found["asked"][name] for name in ("mode", "max_tokens", "temperature")}
    parameters = [{"key": item["key"], "a": 1.0, "b": 0.0}]
    version = {"parameters": parameters, "asked": asked}
    await posted(client, "/v1/banks/made/versions", version, 201)

    async def caution(**sampling: Any) -> str | None:
        body = {"bank": "made", "endpoint": {**COMPLETIONS, "sampling": sampling}}
        session = await posted(client, "/v1/sessions", body, 202)
        said: str | None = session["asked"]["caution"]
        return said

    assert await caution(max_tokens=1024, temperature=0.7) is None
    said = await caution(max_tokens=64, temperature=0.0)
    assert said is not None
    assert "nswers end after 64 tokens here, and had up to 256" in said
    assert "drawn at temperature 0 here, and were at 0.7" in said


async def test_files_of_another_format_are_read_by_a_field_map(client: Client) -> None:
    table = pa.Table.from_pylist([{"q": {"text": "1 + 1?"}, "a": "so: #### 2", "level": 3}])
    output = io.BytesIO()
    parquet.write_table(table, output)
    packed = b64encode(output.getvalue()).decode()
    await client.post("/v1/banks", json={"name": "made"})
    body = {
        "items": {"content_base64": packed},
        "map": {"prompt": "q.text", "target": "a", "difficulty": "level"},
        "target_after": "####",
        "provisional": True,
    }
    url = "/v1/banks/made/imports"
    for wrong, words in (
        ({"map": None}, "target_after needs map"),
        ({"items": None}, "map needs items"),
        ({"map": {"question": "q"}}, "Expected item fields of"),
        ({"map": {"prompt": "body", "target": "a"}}, "expected a field 'body', found q, a, level"),
        ({"items": {"content_base64": "a?b="}}, "expected base64"),
    ):
        assert words in str(await problem_of(client, url, body | wrong))
    made = await posted(client, url, body, 201)
    assert made["version"]["has_content"]
    (item,) = await listing(client, "/v1/banks/made/items")
    assert (item["key"], item["prompt"], item["target"]) == ("1", "1 + 1?", ["2"])


async def test_a_bank_with_other_prompts_is_not_changed(client: Client) -> None:
    await client.post("/v1/banks", json={"name": "made"})
    item = {"key": "q", "prompt": "1 + 1?", "target": "2"}
    await client.post("/v1/banks/made/items", json=item)
    files = [{"name": NAME, "content": _row()}]
    says = "give the new one another name"
    await problem_of(client, URL, {"name": "made", "files": files}, 409, "conflict", says=says)
    assert await listing(client, "/v1/response-sets") == []


async def test_questions_are_attached_to_a_bank_of_parameters(client: Client) -> None:
    await client.post("/v1/banks", json={"name": "made"})
    parameters = "item,a,b,c,d\nq1,1.2,-0.3,0,1\nq2,1.1,0.4,0,1\n"
    imports = "/v1/banks/made/imports"
    version = (await posted(client, imports, {"parameters": {"content": parameters}}, 201))[
        "version"
    ]
    assert not version["has_content"]
    await client.get("/v1/banks/made/versions/1/information")  # the version is cached from here on
    (q1, *_) = await listing(client, "/v1/banks/made/items?order=asc")
    url = f"/v1/banks/made/items/{q1['id']}"
    changed = client.patch(url, json={"prompt": "?"}, headers={"If-Match": '"1"'})
    await refusal_of(changed, 409, says="import items to add its text")

    lines = [{"key": key, "prompt": f"{key}?", "target": "4"} for key in ("q1", "q2")]
    text = "\n".join(map(json.dumps, lines))
    made = (await posted(client, imports, {"items": {"content": text}}, 201))["version"]
    assert (made["number"], made["has_content"], made["scale"]) == (2, True, version["scale"])
    assert made["parameters_hash"] == version["parameters_hash"]
    assert (await got(client, "/v1/banks/made/versions/1"))["has_content"]
    for each in (version, made):
        body = {"bank_version_id": each["id"], "endpoint": COMPLETIONS}
        await posted(client, "/v1/sessions", body, 202)
    other = {"items": {"content": text.replace("q1?", "q9?")}}
    says = "what was measured with an item holds for its text"
    await problem_of(client, imports, other, 409, says=says)


async def test_keys_of_withheld_items_reveal_no_text(
    client: Client, client_with: NewClient
) -> None:
    files = folders(3, 6)
    # A bank of that name shared by another project is not the one created.
    await client.post("/v1/projects", json={"name": "other"})
    there = {"Sextant-Project": "other"}
    await client.post("/v1/banks", json={"name": "made", "shared": True}, headers=there)
    found = await begun(client, files, visibility="withheld", least_models=3)
    assert found["calibration"] is not None
    reader = await client_with("read")
    items = await listing(reader, "/v1/banks/made/items?order=asc")
    assert [item["key"] for item in items] == [f"sums/{n}" for n in range(6)]
    assert {item["prompt"] for item in items} == {None}
    seen = (await reader.get("/v1/response-sets/made")).text
    assert "sums/0" not in seen
    assert '"scorer"' not in seen
    assert not any(row["doc_hash"] in seen for row in rows_of(files, "sums"))
    shifted = {
        name: text.replace('"doc_id": 0,', '"doc_id": 77,') if "model-01" in name else text
        for name, text in files.items()
    }
    sent = [{"name": name, "content": text} for name, text in shifted.items()]
    await problem_of(client, URL, {"name": "made", "files": sent}, says="differently: 0, 77")

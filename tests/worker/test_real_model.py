"""A live session against a real model server: llama.cpp with a tiny random model."""

from pathlib import Path

from app.calling import GenerationParams
from app.services.container import Services
from tests.servers import spawned
from tests.services.sessions import spec, until
from tests.worker.test_live_sessions import model_at


async def test_forty_items_are_put_to_a_real_model_and_every_outcome_is_counted(
    working: Services,
) -> None:
    plan = {
        "stopping": {"se": None, "min_items": 1, "max_items": 40},
        "concurrency": 4,
        # A model that writes nonsense: how many of its answers can be read is up to chance.
        "failures": {"max_share": 1.0},
    }
    with spawned("tests.servers.tiny_llama") as url:
        endpoint = model_at(f"{url}/v1", timeout_s=30.0)
        created = await working.sessions.create(spec(plan=plan, endpoint=endpoint))
        ended = await until(working, created.id)
        rows = await working.sessions.responses(created.id)

    outcomes = ended.summary["outcomes"]
    assert ended.status == "completed"
    assert len(rows) == 40
    assert sum(outcomes.values()) == len(rows)
    assert outcomes["error"] == 0
    for row in rows:
        closing = row.closing
        assert closing is not None
        assert (closing.score is None) == (closing.outcome != "scored")
        assert closing.tokens_out is not None


async def test_an_installed_bank_is_asked_with_its_five_examples(
    working: Services, shared_data: Path, tmp_path: Path
) -> None:
    for name, source in (
        ("test.jsonl", "gsm8k_test.jsonl"),
        ("irt_item_parameters_combined.csv", "gsm8k_irt_item_parameters_combined.csv"),
    ):
        (tmp_path / name).write_bytes((shared_data / "real" / source).read_bytes())
    version, result = await working.catalog.install_now("gsm8k", lambda _: None, tmp_path)
    assert result["items"] == {"active": 1298, "quarantined": 8, "pretest": 0}
    plan = {
        "stopping": {"se": None, "min_items": 1, "max_items": 2},
        "failures": {"max_share": 1.0},
    }
    with spawned("tests.servers.tiny_llama", "--context", "8192") as url:
        # Nonsense ends when its end token is drawn by chance: at temperature 0 it never is.
        sampling = GenerationParams(temperature=1.0, seed=1)
        endpoint = model_at(f"{url}/v1", timeout_s=120.0, sampling=sampling)
        created = await working.sessions.create(spec(bank="gsm8k", plan=plan, endpoint=endpoint))
        ended = await until(working, created.id)
        rows = await working.sessions.responses(created.id)

    assert ended.status == "completed", (ended.stop_detail, ended.summary["outcomes"])
    assert ended.bank_version_id == version.id
    assert ended.summary["outcomes"]["error"] == 0
    loaded = await working.versions.load(version.id)
    five = sum(len(turn.content) for turn in loaded.prompt_style.prefix)
    assert loaded.prompt_style.shots == 5
    for row in rows:
        closing = row.closing
        assert closing is not None
        assert (closing.tokens_in or 0) > five / 2  # the examples were sent along

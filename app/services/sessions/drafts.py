"""New sessions, as they are asked for and as they are checked; `SessionService` stores them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import version as installed_version
from typing import Any

from app import DISTRIBUTION
from app.adapters.prompting import GENERATE
from app.engine import AdaptiveTest
from app.records.endpoints import Endpoint, NewEndpoint
from app.records.provisional import provisional_words
from app.records.sessions import Administration, Examinee, NewSession
from app.services.banks.loaded import LoadedVersion
from app.services.endpoints.origin import origin_of
from app.services.endpoints.specs import EndpointSpec
from app.services.sessions.plan import SessionPlan
from app.services.sessions.run import SessionRun

_SEED_BITS = 31


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSpec:
    """A session to be created.

    Attributes:
        mode: `live` (the server asks an endpoint) or `manual` (the client answers).
        endpoint_id: For live sessions: a stored endpoint.
        endpoint: Or one that is stored with the session, without a name.
        examinee: For manual sessions: who answers, where it is to be known by name.
        bank_version_id: What is asked.
        bank: Or the newest version of a bank, by its id or name.
        plan: Design and failure limits, as `SessionPlan.of_new` reads them.
        unparsed_policy: What an answer that nobody can read counts as, `wrong` or `missing`; by
            default as the bank version has it.
        prompt: What is to be otherwise than in the bank's prompt: `mode`, `system`, `shots`.
        seed: For every random choice; drawn if not given.
        metadata: Free string pairs.
    """

    mode: str
    endpoint_id: str | None = None
    endpoint: EndpointSpec | None = None
    examinee: Examinee | None = None
    bank_version_id: str | None = None
    bank: str | None = None
    plan: Mapping[str, Any] = field(default_factory=dict)
    unparsed_policy: str | None = None
    prompt: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDraft:
    """A session that is checked and not stored yet.

    Attributes:
        new: What is to be stored of it.
        version: What it asks.
        plan: How.
        test: The same, built.
        endpoint: To be stored with it, in the same transaction.
    """

    new: NewSession
    version: LoadedVersion
    plan: SessionPlan
    test: AdaptiveTest
    endpoint: NewEndpoint | None = None

    def with_pretest(self, positions: Sequence[int]) -> "SessionDraft":
        """The same with these items in pretest."""
        plan = replace(self.plan, pretest=replace(self.plan.pretest, positions=tuple(positions)))
        return replace(self, plan=plan, new=replace(self.new, design=plan.to_dict()))

    def run(self, administrations: Sequence[Administration] = ()) -> SessionRun:
        """Its run, which begins with these items."""
        return SessionRun(
            test=self.test,
            plan=self.plan,
            version=self.version,
            seed=self.new.seed,
            administrations=administrations,
        )


def provenance_of(
    version: LoadedVersion,
    endpoint: Endpoint | NewEndpoint | None,
    *,
    seed: int,
    markers: Mapping[str, Any],
    private_endpoints: bool,
    reachable_se: float | None = None,
) -> dict[str, Any]:
    """What a session is made of and under, JSON-able.

    Args:
        version: What is asked, as it is asked.
        endpoint: Who is asked; None where the client answers.
        seed: For every random choice.
        markers: Endpoints of its scorers.
        private_endpoints: Whether it may call loopback and private addresses.
        reachable_se: See `check_reachable`.
    """
    known = version.uncertainty
    return {
        "code_version": _code_version(),
        "bank": version.bank_name,
        "bank_version_id": version.id,
        "bank_version": version.number,
        "parameters_hash": version.parameters_hash,
        "scale": version.bank.scale,
        "response_model": version.response_model,
        "provisional": version.provisional,
        **({"uncertainty": provisional_words(known)} if known and known.matters else {}),
        "n_items": version.n_active,
        "n_never_asked": int((~version.active).sum()),
        "n_uncalibrated": len(version.pretest),
        "asking": version.asking(),
        "asked": _asked(version, endpoint) if endpoint and endpoint.settings.is_called else {},
        "asked_when_calibrated": dict(version.asked_when_calibrated),
        "unparsed_when_calibrated": version.unparsed_when_calibrated,
        "prompt_template_hash": version.prompt_style.template_hash,
        "endpoint": endpoint and origin_of(endpoint),
        "scorer_endpoints": dict(markers),
        "private_endpoints": private_endpoints,
        "seed": seed,
        **({} if reachable_se is None else {"reachable_se": reachable_se}),
    }


@cache
def _code_version() -> str:
    return installed_version(DISTRIBUTION)


def _asked(version: LoadedVersion, endpoint: Endpoint | NewEndpoint) -> dict[str, Any]:
    asked = version.asked()
    if asked.mode == GENERATE:
        sampling = endpoint.settings.sampling
        asked = replace(asked, max_tokens=sampling.max_tokens, temperature=sampling.temperature)
    return asked.to_dict()

"""New sessions: checked, then stored and brought to the workers."""

import secrets
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version as installed_version
from types import MappingProxyType
from typing import Any, Protocol

from app.adapters.prompting import LOGLIKELIHOOD
from app.engine import AdaptiveTest
from app.errors import InvalidInputError
from app.items import ScorerSpec
from app.records.banks import OPEN
from app.records.endpoints import Endpoint, EndpointSettings, NewEndpoint
from app.records.sessions import Administration, NewSession, SessionRecord
from app.services.banks.loaded import LoadedVersion
from app.services.banks.versions import VersionService
from app.services.endpoints.of_scorers import described, scorer_endpoints
from app.services.endpoints.service import EndpointService, EndpointSpec, origin_of
from app.services.sessions.asking import chosen_style
from app.services.sessions.checks import (
    check_plan,
    check_reachable,
    check_repeats,
    require_answers,
    require_content,
    require_options,
)
from app.services.sessions.manual import ask_next
from app.services.sessions.plan import SessionPlan
from app.services.sessions.pretest import PretestPlan
from app.services.sessions.run import SessionRun
from app.storage.database import Database
from app.storage.identifiers import new_id
from app.storage.unit_of_work import UnitOfWork

_SEED_BITS = 31


class SessionQueue(Protocol):
    """Whoever brings sessions to the workers."""

    def enqueue(self, uow: UnitOfWork, session_id: str) -> Awaitable[None]:
        """Ask for a session to be run, within the given transaction."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSpec:
    """A session to be created.

    Attributes:
        mode: `live` (the server asks an endpoint) or `manual` (the client answers).
        endpoint_id: For live sessions: a stored endpoint.
        endpoint: Or one that is stored with the session, without a name.
        bank_version_id: What is asked.
        bank: Or the newest version of a bank, by its id or name.
        plan: Design and failure limits, as `SessionPlan.from_dict` reads them.
        unparsed_policy: What an answer that nobody can read counts as, `wrong` or `missing`; by
            default as the bank version has it.
        prompt: What is to be otherwise than in the bank's prompt: `mode`, `system`, `shots`.
        seed: For every random choice; drawn if not given.
        metadata: Free string pairs.
    """

    mode: str
    endpoint_id: str | None = None
    endpoint: EndpointSpec | None = None
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


class SessionDrafts:
    """New sessions: checked, then stored and brought to the workers.

    Args:
        database: Where they are stored.
        versions: What is asked.
        endpoints: Who is asked.
        queue: Brings live sessions to the workers.
        private_endpoints: Whether sessions made here may call loopback and private addresses. The
            server that takes the request decides this for whichever worker runs the session.
    """

    def __init__(
        self,
        *,
        database: Database,
        versions: VersionService,
        endpoints: EndpointService,
        queue: SessionQueue,
        private_endpoints: bool,
    ) -> None:
        self._database = database
        self._versions = versions
        self._endpoints = endpoints
        self._queue = queue
        self._private_endpoints = private_endpoints

    async def draft(self, spec: SessionSpec) -> SessionDraft:
        """Check a session; nothing is stored.

        Raises:
            InvalidInputError: A design that makes no sense for this bank or endpoint.
            NotFoundError: No such endpoint or bank version.
            SecretsError: The key of a saved endpoint cannot be decrypted.
        """
        version = await self._versions.load(spec.bank_version_id, bank=spec.bank)
        if spec.unparsed_policy is not None:
            version = replace(version, unparsed_policy=spec.unparsed_policy)
        plan = SessionPlan.from_dict(spec.plan)
        if plan.pretest.items_per_session is None:
            plan = replace(plan, pretest=PretestPlan(items_per_session=version.pretest_items))
        reach = await check_reachable(spec.plan, plan, version)
        markers = await self.markers_of(version)
        endpoint = None
        if spec.mode == "live":
            require_content(version)
            choice = spec.endpoint or spec.endpoint_id
            if choice is None:
                raise InvalidInputError("A live session needs an endpoint.")
            endpoint = await self.endpoint(choice)
        seed = secrets.randbits(_SEED_BITS) if spec.seed is None else spec.seed
        draft = await self.session(
            endpoint, version, plan, prompt=spec.prompt, seed=seed, markers=markers
        )
        provenance = {**draft.new.provenance, **reach}
        new = replace(draft.new, metadata=dict(spec.metadata), provenance=provenance)
        return replace(draft, new=new)

    async def endpoint(self, choice: str | EndpointSpec) -> Endpoint | NewEndpoint:
        """Who is to be asked: a saved endpoint by its id, or one that comes with what asks it.

        Raises:
            InvalidInputError: A new one that cannot be used.
            NotFoundError: No such endpoint.
            SecretsError: The key of a saved endpoint cannot be decrypted.
        """
        if isinstance(choice, EndpointSpec):
            return self._endpoints.prepare(choice)
        # Opened, so that a secret that cannot be read is said now.
        return (await self._endpoints.ready(choice)).endpoint

    async def session(
        self,
        endpoint: Endpoint | NewEndpoint | None,
        version: LoadedVersion,
        plan: SessionPlan,
        *,
        seed: int,
        markers: Mapping[str, Any],
        prompt: Mapping[str, Any] = MappingProxyType({}),
    ) -> SessionDraft:
        """A session of an endpoint, or a manual one; nothing is stored.

        Args:
            endpoint: Who is asked; None where the client answers.
            version: What is asked, and how it is put and marked.
            plan: How.
            seed: For every random choice.
            markers: See `markers_of`.
            prompt: How the items are put, where it differs from the bank's way.

        Raises:
            InvalidInputError: A plan that makes no sense for this bank or endpoint.
        """
        price = None if endpoint is None else endpoint.settings.price
        check_plan(plan, price)
        if endpoint is not None:
            require_answers(endpoint.settings.kind)
        test = await self._versions.adaptive_test(version, plan.design, price)
        if endpoint is not None:
            version = await self._asking(version, prompt, endpoint.settings)
            check_repeats(plan, version.prompt_style)
        return SessionDraft(
            new=NewSession(
                id=new_id("ses"),
                mode="manual" if endpoint is None else "live",
                status="awaiting_response" if endpoint is None else "queued",
                endpoint_id=endpoint.id if endpoint else None,
                bank_version_id=version.id,
                design=plan.to_dict(),
                seed=seed,
                provenance=self.provenance(version, endpoint, seed, markers),
            ),
            version=version,
            plan=plan,
            test=test,
            endpoint=endpoint if isinstance(endpoint, NewEndpoint) else None,
        )

    async def start(
        self, draft: SessionDraft, administrations: Sequence[Administration] = ()
    ) -> SessionRecord:
        """Store a session and bring it to the workers, or ask its first item.

        Args:
            draft: The session.
            administrations: What it begins with.

        Raises:
            AlreadyExistsError: Another endpoint has the name of the one that comes with it.
        """
        async with self._database.unit_of_work() as uow:
            if draft.endpoint is not None:
                await uow.endpoints.add(draft.endpoint)
            if draft.new.parent_id is None and draft.plan.pretest.items_per_session:
                positions = await uow.versions.draw_pretest(
                    draft.version.id,
                    draft.plan.pretest.items_per_session,
                    seed=draft.new.seed,
                    barred=draft.version.barred,
                    need_content=draft.new.mode == "live",
                )
                draft = draft.with_pretest(positions)
            new, run = draft.new, draft.run(administrations)
            figures = run.summary(elapsed_s=new.active_s)
            await uow.sessions.add(new, summary=figures, administrations=administrations)
            if new.mode == "live":
                await self._queue.enqueue(uow, new.id)
            else:
                await ask_next(uow, new.id, 0, run, {}, elapsed_s=new.active_s)
            return await uow.sessions.get(new.id)

    async def _asking(
        self, version: LoadedVersion, prompt: Mapping[str, Any], endpoint: EndpointSettings
    ) -> LoadedVersion:
        """The version as this endpoint is asked.

        Raises:
            InvalidInputError: More examples than there are, likelihoods of an endpoint that does
                not tell them, or of items without options.
        """
        tells = self._endpoints.tells_likelihoods(endpoint)
        style = chosen_style(version.prompt_style, prompt, kind=endpoint.kind, tells=tells)
        if version.prompt_style.mode == LOGLIKELIHOOD != style.mode:
            version = replace(version, wanted_mode=LOGLIKELIHOOD)
        if style.mode == LOGLIKELIHOOD:
            async with self._database.reading() as uow:
                require_options(version, await uow.versions.without_options(version.id))
        return replace(version, prompt_style=style)

    async def markers_of(self, version: LoadedVersion) -> dict[str, Any]:
        """Endpoints of a version's own scorers; who may ask is not told which those are."""
        try:
            return await self.markers(version.calling_scorers)
        except InvalidInputError as exc:
            if version.visibility == OPEN:
                raise
            raise InvalidInputError(
                f"A scorer of bank {version.bank_name!r} calls an endpoint that is not there or "
                "cannot serve. The bank is withheld: whoever may write it sees which."
            ) from exc

    async def markers(self, specs: Sequence[ScorerSpec]) -> dict[str, Any]:
        """Endpoints of these scorers; one that cannot serve is refused before any call."""
        if not specs:
            return {}
        async with self._database.reading() as uow:
            return described(await scorer_endpoints(uow, specs))

    def provenance(
        self,
        version: LoadedVersion,
        endpoint: Endpoint | NewEndpoint | None,
        seed: int,
        markers: Mapping[str, Any],
    ) -> dict[str, Any]:
        """What a session was made of and under, JSON-able; `markers` as of `markers`."""
        return {
            "code_version": installed_version("sextant"),
            "bank": version.bank_name,
            "bank_version_id": version.id,
            "bank_version": version.number,
            "parameters_hash": version.parameters_hash,
            "scale": version.bank.scale,
            "response_model": version.response_model,
            "provisional": version.provisional,
            "n_items": int(version.active.sum()),
            "n_never_asked": int((~version.active).sum()),
            "asking": version.asking(),
            "asked": version.asked().to_dict() if endpoint else {},
            "asked_when_calibrated": dict(version.asked_when_calibrated),
            "unparsed_when_calibrated": version.unparsed_when_calibrated,
            "prompt_template_hash": version.prompt_style.template_hash,
            "endpoint": endpoint and origin_of(endpoint),
            "scorer_endpoints": dict(markers),
            "private_endpoints": self._private_endpoints,
            "seed": seed,
        }

"""Endpoints: created, changed, probed, and opened for the worker with their secrets decrypted."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from weakref import WeakValueDictionary

from app.acting import maker, owner
from app.adapters import registry
from app.adapters.base import CompletionRequest, EndpointConfig, ProbeReport
from app.adapters.endpoint import require_public_url
from app.adapters.guard import AddressGuard
from app.adapters.likelihood import TellsLikelihoods
from app.adapters.probing import PROBE_AS_A_WHOLE, PROBE_CALLS
from app.adapters.transport import Transport, parse_endpoint_url
from app.calling import RetryPolicy
from app.errors import (
    ExamineeError,
    FieldProblem,
    InvalidInputError,
    InvalidStateError,
    NotFoundError,
    SecretsError,
    faults_within,
)
from app.records.endpoints import (
    Endpoint,
    EndpointSettings,
    Limits,
    NewEndpoint,
    Price,
    SealedSecrets,
)
from app.records.projects import DaySpend
from app.records.sessions import Origin
from app.services.endpoints.budgets import Budgets, most_taken, require_bounds, rough_tokens
from app.services.endpoints.origin import as_begun, origin_of
from app.services.endpoints.specs import EndpointChange, EndpointSpec
from app.storage.database import Database
from app.storage.identifiers import new_id
from app.storage.paging import Page, PageRequest
from app.storage.secrets import SecretBox


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyEndpoint:
    """An endpoint opened for calls.

    Attributes:
        endpoint: As stored, but asked as when the work began.
        config: What an adapter needs, secrets decrypted.
        slots: Enter it around each call; holds back what exceeds the allowed concurrency, over
            all sessions of this process.
    """

    endpoint: Endpoint
    config: EndpointConfig
    slots: AbstractAsyncContextManager[None]

    @property
    def price(self) -> Price:
        """What its tokens cost."""
        return self.endpoint.settings.price

    @property
    def retry(self) -> RetryPolicy:
        """How long to go on after failures."""
        return self.endpoint.settings.retry


class EndpointService:
    """Use cases of endpoints.

    Attributes:
        budgets: What calls may take a day.

    Raises:
        NotFoundError: What is named is not there, of all that name something.
    """

    def __init__(
        self, database: Database, secrets: SecretBox, transport: Transport, guard: AddressGuard
    ) -> None:
        self._database = database
        self._secrets = secrets
        self._transport = transport
        self._guard = guard
        self.budgets = Budgets(database)
        # Shared by the sessions of this process for as long as one of them holds it.
        self._slots: WeakValueDictionary[tuple[str, int], asyncio.Semaphore] = WeakValueDictionary()

    async def create(self, spec: EndpointSpec) -> Endpoint:
        """Store an endpoint; one without a name is not listed (it came with a session).

        Raises:
            InvalidInputError: Its kind, URL or options cannot be used.
            BlockedAddressError: Its URL names an address that this server does not call.
            AlreadyExistsError: Another endpoint has this name.
        """
        self.check(spec)
        new = NewEndpoint(id=new_id("end"), settings=spec.settings, sealed=self._sealed(spec))
        async with self._database.unit_of_work() as uow:
            return await uow.endpoints.add(new)

    async def to_ask(
        self, chosen: str | EndpointSpec, *, at: str = "/endpoint"
    ) -> Endpoint | NewEndpoint:
        """A saved endpoint, or one that is checked and not stored yet: it goes with what asks it.

        Args:
            chosen: Its id, or what it is to be.
            at: Pointer to the latter in what came in.

        Raises:
            NotFoundError: No such endpoint.
            SecretsError: Its key cannot be decrypted: that is said now.
            InvalidInputError: Its kind, URL or options cannot be used.
            BlockedAddressError: Its URL names an address that this server does not call.
        """
        if isinstance(chosen, EndpointSpec):
            with faults_within(at):
                self.check(chosen)
            sealed = self._sealed(chosen)
            return NewEndpoint(id=new_id("end"), settings=chosen.settings, sealed=sealed)
        endpoint = await self.get(chosen, archived=True)
        if not endpoint.settings.is_called:
            raise InvalidInputError(
                f"{endpoint.settings.name!r} answers by hand, so it cannot be asked: make a manual "
                "session that names it as its examinee.",
                problems=[FieldProblem(f"{at}_id", "expected an endpoint that can be called")],
            )
        self._opened(endpoint)
        return endpoint

    async def get(self, endpoint_id: str, *, archived: bool = False) -> Endpoint:
        """One endpoint.

        Args:
            endpoint_id: Its id.
            archived: Find it also when it was deleted: sessions still refer to it.
        """
        async with self._database.reading() as uow:
            return await uow.endpoints.get(endpoint_id, archived=archived)

    async def list(
        self, page: PageRequest, *, kind: str | None = None, name: str | None = None
    ) -> Page[Endpoint]:
        """Named endpoints.

        Raises:
            NotFoundError: The page starts behind an endpoint that is not there.
        """
        async with self._database.unit_of_work() as uow:
            return await uow.endpoints.page(page, kind=kind, name=name)

    async def update(
        self, endpoint_id: str, change: EndpointChange, *, expected_revision: int
    ) -> Endpoint:
        """Change an endpoint.

        Sessions under way take a changed key, header, timeout, price or limit with their next call.
        The model and how it is asked stay for them; another address or kind ends them.

        Secrets that stay are neither read nor written: this works also with a lost key.

        Raises:
            NotFoundError: No such endpoint.
            PreconditionFailedError: It was changed since `expected_revision`.
            InvalidInputError: The result cannot be used, or stored secrets would go to another
                host than the one they were given for.
            BlockedAddressError: Its URL names an address that this server does not call.
            AlreadyExistsError: Another endpoint has this name.
        """
        async with self._database.unit_of_work() as uow:
            present = await uow.endpoints.get(endpoint_id)
            spec = change.applied_to(present)
            self.check(spec)
            sealed = self._sealed(spec)
            return await uow.endpoints.replace(
                endpoint_id,
                spec.settings,
                api_key=... if change.api_key is ... else sealed.api_key,
                headers=... if change.headers is ... else (sealed.headers, sealed.header_names),
                expected_revision=expected_revision,
            )

    async def delete(
        self, endpoint_id: str, *, expected_revision: int, erases: bool = False
    ) -> None:
        """Delete an endpoint; sessions that used it keep referring to it.

        With the last of them, or at once where there is none, its row goes with its secrets.

        Raises:
            NotFoundError: No such endpoint.
            PreconditionFailedError: It was changed since `expected_revision`.
            InvalidStateError: It is to be erased, and sessions stand on it.
        """
        async with self._database.unit_of_work() as uow:
            found = await uow.endpoints.archive(endpoint_id, expected_revision=expected_revision)
            if erases:
                users = await uow.removals.users_of_endpoint(found.id, found.project_id)
                if users:
                    raise InvalidStateError(
                        f"Endpoint {endpoint_id} is in use by {users}: delete these first."
                    )
            await uow.removals.unused(endpoint_id, endpoints=[endpoint_id], banks=False)

    async def probe(self, endpoint_id: str) -> ProbeReport:
        """Ask the endpoint what it can do.

        Raises:
            NotFoundError: No such endpoint.
            SecretsError: Its secrets cannot be decrypted with the present keys.
            ExamineeError: It gave no usable answer at all.
            BudgetSpentError: A budget of the day does not last for it.
        """
        return await self._probed(await self.ready(endpoint_id))

    async def probe_unsaved(self, spec: EndpointSpec) -> ProbeReport:
        """Ask an endpoint that is not stored what it can do.

        Raises:
            InvalidInputError: Its kind, URL or options cannot be used.
            BlockedAddressError: Its URL names an address that this server does not call.
            ExamineeError: It gave no usable answer at all.
            BudgetSpentError: A budget of the day does not last for it.
        """
        return await self._probed(self.unsaved(spec))

    async def _probed(self, ready: ReadyEndpoint) -> ProbeReport:
        most = most_taken(PROBE_AS_A_WHOLE, ready.config.sampling, ready.endpoint.settings)
        seconds = PROBE_CALLS * ready.config.timeout_s
        async with self.budgets.held(ready.endpoint, most, timeout_s=seconds):
            report = await registry.build(ready.config, self._transport).probe()
        if report.latency_ms is None and report.error_code is not None:
            raise _ERROR_OF.get(report.error_code, ExamineeError)(report.detail)
        return report

    async def spend(self, endpoint_id: str) -> tuple[Endpoint, DaySpend]:
        """An endpoint, and what calls of it took of today's budgets."""
        async with self._database.reading() as uow:
            endpoint = await uow.endpoints.get(endpoint_id)
            return endpoint, await uow.spend.today(endpoint.id)

    async def ready(self, endpoint_id: str, origin: Origin | None = None) -> ReadyEndpoint:
        """Open an endpoint for calls; one that was deleted since serves its sessions to the end.

        It is asked as `origin` says (see `origin_of`), which was noted when the work began.

        Raises:
            NotFoundError: No such endpoint.
            EndpointMovedError: It has another address or kind than the work began with.
            SecretsError: Its secrets cannot be decrypted with the present keys.
        """
        return self._ready(as_begun(await self.get(endpoint_id, archived=True), origin))

    async def renewed(self, ready: ReadyEndpoint) -> ReadyEndpoint:
        """The same endpoint with its present secrets, time limit, limits and prices.

        Address, model and how it is asked stay: answers of two would not be one measurement.

        Returns:
            `ready` itself where nothing has changed, or the present secrets cannot be read.

        Raises:
            EndpointMovedError: Its address or kind was changed.
        """
        try:
            endpoint = await self.get(ready.endpoint.id, archived=True)
            if endpoint.revision == ready.endpoint.revision:
                return ready
            return self._ready(as_begun(endpoint, origin_of(ready.endpoint)))
        except (NotFoundError, SecretsError):  # the former: opened for a few calls, never stored
            return ready

    def _ready(self, endpoint: Endpoint) -> ReadyEndpoint:
        config = self._opened(endpoint).config
        allowed = endpoint.settings.limits.concurrency
        if allowed is None:
            return ReadyEndpoint(endpoint=endpoint, config=config, slots=nullcontext())
        slots = self._slots.get((endpoint.id, allowed)) or asyncio.Semaphore(allowed)
        self._slots[endpoint.id, allowed] = slots
        return ReadyEndpoint(endpoint=endpoint, config=config, slots=slots)

    def unsaved(self, spec: EndpointSpec) -> ReadyEndpoint:
        """An endpoint opened for a few calls and not stored; its rate limits are nobody's.

        Raises:
            InvalidInputError: Its kind, URL or options cannot be used.
            BlockedAddressError: Its URL names an address that this server does not call.
        """
        self.check(spec)
        now = datetime.now(UTC)
        endpoint = Endpoint(
            id=new_id("end"),
            settings=replace(spec.settings, limits=Limits()),
            sealed=SealedSecrets(),
            revision=1,
            project_id=owner(),
            created_by=maker(),
            created_at=now,
            updated_at=now,
            archived_at=None,
        )
        return ReadyEndpoint(endpoint=endpoint, config=spec.config, slots=nullcontext())

    async def wait_for_turn(self, ready: ReadyEndpoint, request: CompletionRequest) -> None:
        """Wait until the endpoint's limits allow `request`, over all sessions and workers."""
        if ready.endpoint.settings.limits.rate_limited:
            tokens = rough_tokens(request, ready.config.sampling)
            await asyncio.sleep(await self.reserve(ready.endpoint.id, tokens))

    async def reserve(self, endpoint_id: str, tokens: float) -> float:
        """Take the next place in the endpoint's schedule, which all workers share.

        Returns:
            Seconds to wait before calling.
        """
        async with self._database.unit_of_work() as uow:
            return await uow.endpoints.reserve(endpoint_id, tokens)

    def check(self, spec: EndpointSpec) -> None:
        """Build the adapter once, so that what cannot work is said now."""
        base_url = spec.settings.base_url
        if base_url:
            require_public_url(base_url)
        registry.build(spec.config, self._transport)
        require_bounds(spec.settings, spec.settings.limits, "its budget")
        if base_url:
            self._guard.check_host(parse_endpoint_url(base_url).host, at="/base_url")

    def tells_likelihoods(self, settings: EndpointSettings) -> bool:
        """Whether endpoints of this kind may say how likely a text is; no call is made."""
        examinee = registry.build(EndpointSpec(settings=settings).config, self._transport)
        return isinstance(examinee, TellsLikelihoods)

    def _sealed(self, spec: EndpointSpec) -> SealedSecrets:
        return SealedSecrets(
            api_key=self._secrets.encrypt(spec.api_key) if spec.api_key else None,
            headers=self._secrets.encrypt(json.dumps(dict(spec.headers))) if spec.headers else None,
            header_names=tuple(spec.headers),
        )

    def _opened(self, endpoint: Endpoint) -> EndpointSpec:
        sealed = endpoint.sealed
        return EndpointSpec(
            settings=endpoint.settings,
            api_key=self._secrets.decrypt(sealed.api_key) if sealed.api_key else None,
            headers=json.loads(self._secrets.decrypt(sealed.headers)) if sealed.headers else {},
        )


_ERROR_OF: Mapping[str, type[ExamineeError]] = {
    error.code: error for error in ExamineeError.__subclasses__()
}

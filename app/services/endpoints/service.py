"""Create, change and probe endpoints, and open them for the worker with decrypted secrets."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from weakref import WeakValueDictionary

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
    CallLimits,
    Endpoint,
    EndpointSettings,
    Price,
    SealedSecrets,
    StoredEndpoint,
)
from app.records.projects import DaySpend
from app.records.sessions import Origin
from app.services.endpoints.budgets import (
    Budgets,
    most_tokens,
    require_bounds,
    rough_tokens,
    taken,
)
from app.services.endpoints.specs import EndpointChange, EndpointSpec, as_begun, origin_of
from app.services.waiting import Recent
from app.storage.database import Database
from app.storage.identifiers import new_id
from app.storage.paging import Page, PageRequest
from app.storage.secrets import SecretBox

#: Seconds for which a seen endpoint is not looked up again.
_KEPT_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyEndpoint:
    """An endpoint opened for calls.

    Attributes:
        endpoint: The stored endpoint, with the model and parameters of when the work began.
        slots: Context manager to enter around each call; it limits the number of concurrent calls
            of all sessions of this process.
    """

    endpoint: Endpoint
    config: EndpointConfig
    slots: AbstractAsyncContextManager[None]

    @property
    def price(self) -> Price:
        """Price of the endpoint's tokens."""
        return self.endpoint.settings.price

    @property
    def retry(self) -> RetryPolicy:
        """Policy of repeated attempts after failures."""
        return self.endpoint.settings.retry


class EndpointService:
    """Use cases of endpoints.

    Raises:
        NotFoundError: From every method that takes an id: no such endpoint.
        InvalidInputError: From every method that takes a specification: its kind, URL or options
            cannot be used.
        BlockedAddressError: Likewise: its URL names an address that this server does not call.
    """

    def __init__(
        self, database: Database, secrets: SecretBox, transport: Transport, guard: AddressGuard
    ) -> None:
        self._database = database
        self._secrets = secrets
        self._transport = transport
        self._guard = guard
        self.budgets = Budgets(database)
        self._recent: Recent[str, StoredEndpoint] = Recent(
            lambda endpoint_id: self.get(endpoint_id, archived=True), _KEPT_S
        )
        # Shared by the sessions of this process for as long as one of them holds it.
        self._slots: WeakValueDictionary[tuple[str, int], asyncio.Semaphore] = WeakValueDictionary()

    async def create(self, spec: EndpointSpec) -> StoredEndpoint:
        """Store an endpoint; an unnamed one came with a session and is not listed.

        Raises:
            AlreadyExistsError: Another endpoint has this name.
        """
        self.check(spec)
        new = Endpoint(id=new_id("end"), settings=spec.settings, sealed=self._sealed(spec))
        async with self._database.unit_of_work() as uow:
            return await uow.endpoints.add(new)

    async def to_ask(self, chosen: str | EndpointSpec, *, at: str = "/endpoint") -> Endpoint:
        """A stored endpoint, or a checked new one, which is stored later with its session.

        `at` is the JSON pointer to the specification in the request.

        Raises:
            SecretsError: Its key cannot be decrypted; this is reported before any call.
            InvalidInputError: A person answers for the endpoint.
        """
        if isinstance(chosen, EndpointSpec):
            with faults_within(at):
                self.check(chosen)
            sealed = self._sealed(chosen)
            return Endpoint(id=new_id("end"), settings=chosen.settings, sealed=sealed)
        endpoint = await self.get(chosen, archived=True)
        if not endpoint.settings.is_called:
            raise InvalidInputError(
                f"{endpoint.settings.name!r} answers by hand, so it cannot be asked: make a manual "
                "session that names it as its examinee.",
                problems=[FieldProblem(f"{at}_id", "expected an endpoint that can be called")],
            )
        self._opened(endpoint)
        return endpoint

    async def get(self, endpoint_id: str, *, archived: bool = False) -> StoredEndpoint:
        """One endpoint; if `archived`, also a deleted one, to which sessions still refer."""
        async with self._database.reading() as uow:
            return await uow.endpoints.get(endpoint_id, archived=archived)

    async def list(
        self, page: PageRequest, *, kind: str | None = None, name: str | None = None
    ) -> Page[StoredEndpoint]:
        """Named endpoints.

        Raises:
            NotFoundError: The page starts after an endpoint that does not exist.
        """
        async with self._database.unit_of_work() as uow:
            return await uow.endpoints.page(page, kind=kind, name=name)

    async def update(
        self, endpoint_id: str, change: EndpointChange, *, expected_revision: int
    ) -> StoredEndpoint:
        """Change an endpoint.

        Running sessions use a changed key, header, timeout, price or limit from their next call.
        They keep their model and its parameters; a changed address or kind ends them.

        Unchanged secrets are neither read nor written, so this works even if the key is lost.

        Raises:
            PreconditionFailedError: It was changed since `expected_revision`.
            InvalidInputError: The changed endpoint cannot be used, or stored secrets would go to
                a host other than the one they were given for.
            BlockedAddressError: As for new endpoints.
            AlreadyExistsError: Another endpoint has this name.
        """
        async with self._database.unit_of_work() as uow:
            present = await uow.endpoints.get(endpoint_id)
            spec = change.applied_to(present)
            self.check(spec)
            sealed = self._sealed(spec)
            changed = await uow.endpoints.replace(
                endpoint_id,
                spec.settings,
                api_key=... if change.api_key is ... else sealed.api_key,
                headers=... if change.headers is ... else (sealed.headers, sealed.header_names),
                expected_revision=expected_revision,
            )
        self._recent.forget(lambda known: known.id == endpoint_id)
        return changed

    async def delete(
        self, endpoint_id: str, *, expected_revision: int, erases: bool = False
    ) -> None:
        """Delete an endpoint; sessions that used it keep referring to it.

        Its row and secrets are deleted with the last of these, or at once where there is none.

        Raises:
            PreconditionFailedError: It was changed since `expected_revision`.
            InvalidStateError: The endpoint shall be erased, but sessions use it.
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

    async def probe(self, endpoint: str | EndpointSpec) -> ProbeReport:
        """Find out by calls what a stored endpoint, or one that is not stored, can do.

        Raises:
            SecretsError: Its secrets cannot be decrypted with the present keys.
            ExamineeError: It gave no usable answer at all.
            BudgetSpentError: The rest of a daily budget does not suffice.
        """
        ready = await self.open(endpoint)
        settings = ready.endpoint.settings
        most = taken(settings, *most_tokens(PROBE_AS_A_WHOLE, settings))
        seconds = PROBE_CALLS * ready.config.timeout_s
        async with self.budgets.held(ready.endpoint, most, timeout_s=seconds):
            report = await registry.build(ready.config, self._transport).probe()
        if report.latency_ms is None and report.error_code is not None:
            raise _ERROR_OF.get(report.error_code, ExamineeError)(report.detail)
        return report

    async def spend(self, endpoint_id: str) -> tuple[StoredEndpoint, DaySpend]:
        """An endpoint, and today's spending of its calls."""
        async with self._database.reading() as uow:
            endpoint = await uow.endpoints.get(endpoint_id)
            return endpoint, await uow.spend.today(endpoint.id)

    async def ready(self, endpoint_id: str, origin: Origin | None = None) -> ReadyEndpoint:
        """Open an endpoint for calls; a deleted one still serves its sessions to their end.

        It keeps the model and parameters in `origin` (see `origin_of`), noted as the work began.

        Raises:
            EndpointMovedError: Its address or kind has changed since the work began.
            SecretsError: Its secrets cannot be decrypted with the present keys.
        """
        endpoint = await self.get(endpoint_id, archived=True)
        self._recent.keep(endpoint_id, endpoint)
        return self._ready(as_begun(endpoint, origin))

    async def renewed(self, ready: ReadyEndpoint) -> ReadyEndpoint:
        """The same endpoint with its present secrets, time limit, limits and prices.

        Address, model and parameters stay the same, since one measurement needs one examinee.
        Every call asks for it: all calls of this process share one look-up a second.

        Returns:
            `ready` itself if nothing has changed, or if the present secrets cannot be read.

        Raises:
            EndpointMovedError: Its address or kind was changed.
        """
        try:
            endpoint = await self._recent.get(ready.endpoint.id)
            if endpoint.revision == ready.endpoint.revision:
                return ready
            return self._ready(as_begun(endpoint, origin_of(ready.endpoint)))
        except (NotFoundError, SecretsError):  # not found: it was opened unsaved for a few calls
            return ready

    def _ready(self, endpoint: Endpoint) -> ReadyEndpoint:
        config = self._opened(endpoint).config
        allowed = endpoint.settings.limits.concurrency
        if allowed is None:
            return ReadyEndpoint(endpoint=endpoint, config=config, slots=nullcontext())
        slots = self._slots.get((endpoint.id, allowed)) or asyncio.Semaphore(allowed)
        self._slots[endpoint.id, allowed] = slots
        return ReadyEndpoint(endpoint=endpoint, config=config, slots=slots)

    async def open(self, chosen: str | EndpointSpec) -> ReadyEndpoint:
        """Open a stored endpoint, or for a few calls one that is not stored.

        The latter shares no rate limits.

        Raises:
            SecretsError: Its secrets cannot be decrypted with the present keys.
        """
        if isinstance(chosen, str):
            return await self.ready(chosen)
        self.check(chosen)
        settings = replace(chosen.settings, limits=CallLimits())
        endpoint = Endpoint(id=new_id("end"), settings=settings)
        return ReadyEndpoint(endpoint=endpoint, config=chosen.config, slots=nullcontext())

    async def wait_for_turn(self, ready: ReadyEndpoint, request: CompletionRequest) -> None:
        """Wait until the endpoint's limits, shared by all workers, allow `request`."""
        settings = ready.endpoint.settings
        if settings.limits.rpm is not None or settings.limits.tpm is not None:
            tokens = rough_tokens(request, settings)
            await asyncio.sleep(await self.reserve(ready.endpoint.id, tokens))

    async def reserve(self, endpoint_id: str, tokens: float) -> float:
        """Seconds until the next call in the endpoint's schedule, which is thereby reserved."""
        async with self._database.unit_of_work() as uow:
            return await uow.endpoints.reserve(endpoint_id, tokens)

    def check(self, spec: EndpointSpec) -> None:
        """Build the adapter once, so that unusable settings are reported at once."""
        base_url = spec.settings.base_url
        if base_url:
            require_public_url(base_url)
        registry.build(spec.config, self._transport)
        require_bounds(spec.settings, spec.settings.limits, "its budget")
        if base_url:
            self._guard.check_host(parse_endpoint_url(base_url).host, at="/base_url")

    def tells_likelihoods(self, settings: EndpointSettings) -> bool:
        """Whether endpoints of this kind may return likelihoods of texts; makes no call."""
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

"""The services of a Sextant process, opened once and closed in the right order."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from app import scorers
from app.adapters.guard import AddressGuard
from app.adapters.transport import Transport
from app.services.api_keys import ApiKeyService, Logins
from app.services.banks.confined_tests import close_processes
from app.services.banks.files import BankExports, Bundles
from app.services.banks.items import ItemService, ItemUses
from app.services.banks.joins import JoinChecks
from app.services.banks.provisional import RecalibrationAdvice
from app.services.banks.report import VersionReports
from app.services.banks.service import BankService
from app.services.banks.versions import VersionService
from app.services.calibrations.drift import DriftService
from app.services.calibrations.from_results import ResultBanks
from app.services.calibrations.service import CalibrationService
from app.services.catalog.service import CatalogService
from app.services.endpoints.service import EndpointService
from app.services.leased import Queue
from app.services.projects import ProjectService
from app.services.rankings.manual import ManualRankings
from app.services.rankings.service import RankingService
from app.services.responses.collection import Collector
from app.services.responses.confined_reading import Reader
from app.services.responses.service import ResponseSetService
from app.services.results.comparisons import ComparisonService
from app.services.results.gates import BaselineService, GateService
from app.services.results.leaderboards import LeaderboardService
from app.services.results.simulations import SimulationService
from app.services.scoring import ScorerTrials
from app.services.secret_keys import SecretKeys
from app.services.sessions.asking import Previews
from app.services.sessions.derived import DerivedSessions
from app.services.sessions.report import SessionReports
from app.services.sessions.service import SessionService
from app.services.visibility import ScorerGuard
from app.services.webhooks import WebhookService
from app.settings import Settings
from app.storage.database import Database
from app.storage.secrets import SecretBox


class Services:
    """The services of one process, and the parts that they share."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        queue: Queue,
        transport: Transport,
        guard: AddressGuard,
    ) -> None:
        reader = Reader(settings.import_memory_bytes)
        self.settings: Final = settings
        self.database: Final = database
        self.transport: Final = transport
        self.secrets: Final = SecretBox(settings)
        self.secret_keys: Final = SecretKeys(database, self.secrets)
        self.api_keys: Final = ApiKeyService(database)
        self.logins: Final = Logins(database, self.api_keys)
        self.projects: Final = ProjectService(database)
        self.endpoints: Final = EndpointService(database, self.secrets, transport, guard)
        self.scorer_guard: Final = ScorerGuard(database)
        self.banks: Final = BankService(database, reader)
        self.items: Final = ItemService(database, reader)
        self.versions: Final = VersionService(database)
        self.item_uses: Final = ItemUses(database)
        self.bank_exports: Final = BankExports(database, self.versions)
        self.bundles: Final = Bundles(
            database, self.banks, self.versions, settings.import_memory_bytes
        )
        self.response_sets: Final = ResponseSetService(database, reader)
        self.calibrations: Final = CalibrationService(
            database=database,
            response_sets=self.response_sets,
            banks=self.banks,
            versions=self.versions,
            queue=queue,
        )
        self.catalog: Final = CatalogService(
            database=database,
            banks=self.banks,
            calibrations=self.calibrations,
            queue=queue,
            guard=guard,
            folder=settings.catalog,
        )
        self.joins: Final = JoinChecks(database, self.versions, self.response_sets)
        self.recalibration_advice: Final = RecalibrationAdvice(database, self.versions)
        self.version_reports: Final = VersionReports(
            database, self.versions, self.joins, self.recalibration_advice
        )
        self.collector: Final = Collector(database)
        self.drift: Final = DriftService(versions=self.versions, response_sets=self.response_sets)
        self.result_banks: Final = ResultBanks(
            database=database, reader=reader, banks=self.banks, calibrations=self.calibrations
        )
        self.manual_sessions: Final = ManualRankings(
            database=database,
            versions=self.versions,
            joins=self.joins,
            endpoints=self.endpoints,
            transport=transport,
        )
        self.sessions: Final = SessionService(
            database=database,
            versions=self.versions,
            endpoints=self.endpoints,
            manual=self.manual_sessions,
            queue=queue,
            private_endpoints=settings.calls_private,
        )
        self.session_reports: Final = SessionReports(
            database, self.versions, self.sessions, self.joins
        )
        self.derived_sessions: Final = DerivedSessions(
            database=database,
            versions=self.versions,
            endpoints=self.endpoints,
            queue=queue,
            sessions=self.sessions,
        )
        self.rankings: Final = RankingService(
            database=database,
            versions=self.versions,
            endpoints=self.endpoints,
            sessions=self.sessions,
            queue=queue,
        )
        self.simulations: Final = SimulationService(self.versions, self.endpoints)
        self.comparisons: Final = ComparisonService(database, self.versions)
        self.gates: Final = GateService(database, self.sessions, self.versions)
        self.baselines: Final = BaselineService(database, self.versions)
        self.scorer_trials: Final = ScorerTrials(database, self.endpoints, transport)
        self.previews: Final = Previews(
            database=database, endpoints=self.endpoints, transport=transport
        )
        self.leaderboards: Final = LeaderboardService(database)
        self.webhooks: Final = WebhookService(
            database, self.secrets, guard, calls_private=settings.calls_private
        )


@asynccontextmanager
async def open_services(
    settings: Settings, database: Database, queue: Queue
) -> AsyncIterator[Services]:
    """Build the services on an open database, which the caller closes.

    Raises:
        SecretsError: SEXTANT_SECRET_KEY is not a key.
    """
    guard = AddressGuard(
        allow_private=settings.calls_private, allowed_networks=settings.allowed_networks
    )
    async with Transport(guard=guard) as transport:
        services = Services(settings, database, queue, transport, guard)
        try:
            yield services
        finally:
            await services.endpoints.budgets.close()
            await scorers.aclose()
            close_processes()

"""Everything a process of Sextant works with, opened once and closed in the right order."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from app import scorers
from app.adapters.guard import AddressGuard
from app.adapters.transport import Transport
from app.services.api_keys import ApiKeyService, Logins
from app.services.audit import AuditService
from app.services.banks.bundles import Bundles
from app.services.banks.confined_tests import close_processes
from app.services.banks.export import BankExports
from app.services.banks.forms import FormService
from app.services.banks.items import ItemService
from app.services.banks.joins import JoinChecks
from app.services.banks.recalibration_advice import RecalibrationAdvice
from app.services.banks.report import VersionReports
from app.services.banks.service import BankService
from app.services.banks.uses import ItemUses
from app.services.banks.versions import VersionService
from app.services.calibrations.drift import DriftService
from app.services.calibrations.from_results import ResultBanks
from app.services.calibrations.service import CalibrationService
from app.services.catalog.service import CatalogService
from app.services.endpoints.service import EndpointService
from app.services.leased import Queue
from app.services.marking.answer_scorer import ScorerTrials
from app.services.projects import ProjectService
from app.services.rankings.manual import ManualRankings
from app.services.rankings.service import RankingService
from app.services.responses.collection import Collector
from app.services.responses.confined_reading import Reader
from app.services.responses.service import ResponseSetService
from app.services.results.baselines import BaselineService
from app.services.results.comparisons import ComparisonService
from app.services.results.gates import GateService
from app.services.results.leaderboards import LeaderboardService
from app.services.results.simulations import SimulationService
from app.services.scorer_guard import ScorerGuard
from app.services.secret_keys import SecretKeys
from app.services.sessions.derived import DerivedSessions
from app.services.sessions.previews import Previews
from app.services.sessions.report import SessionReports
from app.services.sessions.service import SessionService
from app.services.webhooks import WebhookService
from app.settings import Settings
from app.storage.database import Database
from app.storage.secrets import SecretBox


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services of one process, with what they share."""

    settings: Settings
    database: Database
    secrets: SecretBox
    secret_keys: SecretKeys
    transport: Transport
    api_keys: ApiKeyService
    logins: Logins
    projects: ProjectService
    audit: AuditService
    endpoints: EndpointService
    scorer_guard: ScorerGuard
    banks: BankService
    items: ItemService
    versions: VersionService
    item_uses: ItemUses
    bank_exports: BankExports
    bundles: Bundles
    catalog: CatalogService
    version_reports: VersionReports
    joins: JoinChecks
    recalibration_advice: RecalibrationAdvice
    forms: FormService
    session_reports: SessionReports
    response_sets: ResponseSetService
    drift: DriftService
    collector: Collector
    calibrations: CalibrationService
    result_banks: ResultBanks
    sessions: SessionService
    derived_sessions: DerivedSessions
    rankings: RankingService
    manual_sessions: ManualRankings
    simulations: SimulationService
    comparisons: ComparisonService
    gates: GateService
    baselines: BaselineService
    scorer_trials: ScorerTrials
    previews: Previews
    leaderboards: LeaderboardService
    webhooks: WebhookService


@asynccontextmanager
async def open_services(
    settings: Settings, database: Database, queue: Queue
) -> AsyncIterator[Services]:
    """Build the services on an open database, which stays its opener's to close.

    Raises:
        SecretsError: SEXTANT_SECRET_KEY is not a key.
    """
    guard = AddressGuard(
        allow_private=settings.calls_private, allowed_networks=settings.allowed_networks
    )
    secrets = SecretBox(settings)
    async with Transport(guard=guard) as transport:
        endpoints = EndpointService(database, secrets, transport, guard)
        api_keys = ApiKeyService(database)
        reader = Reader(settings.import_memory_bytes)
        banks = BankService(database, reader)
        versions = VersionService(database)
        response_sets = ResponseSetService(database, reader)
        joins = JoinChecks(database, versions, response_sets)
        recalibration_advice = RecalibrationAdvice(database, versions)
        manual_sessions = ManualRankings(
            database=database, versions=versions, endpoints=endpoints, transport=transport
        )
        sessions = SessionService(
            database=database,
            versions=versions,
            endpoints=endpoints,
            manual=manual_sessions,
            queue=queue,
            private_endpoints=settings.calls_private,
        )
        calibrations = CalibrationService(
            database=database,
            response_sets=response_sets,
            banks=banks,
            versions=versions,
            queue=queue,
        )
        try:
            yield Services(
                settings=settings,
                database=database,
                secrets=secrets,
                secret_keys=SecretKeys(database, secrets),
                transport=transport,
                api_keys=api_keys,
                logins=Logins(database, api_keys),
                projects=ProjectService(database),
                audit=AuditService(database),
                endpoints=endpoints,
                scorer_guard=ScorerGuard(database),
                banks=banks,
                items=ItemService(database, reader),
                versions=versions,
                item_uses=ItemUses(database),
                bank_exports=BankExports(database, versions),
                bundles=Bundles(database, banks, versions, settings.import_memory_bytes),
                catalog=CatalogService(
                    database=database,
                    banks=banks,
                    calibrations=calibrations,
                    queue=queue,
                    guard=guard,
                    folder=settings.catalog,
                ),
                version_reports=VersionReports(database, versions, joins, recalibration_advice),
                joins=joins,
                recalibration_advice=recalibration_advice,
                forms=FormService(versions),
                session_reports=SessionReports(database, versions, sessions, joins),
                response_sets=response_sets,
                collector=Collector(database),
                drift=DriftService(versions=versions, response_sets=response_sets),
                calibrations=calibrations,
                result_banks=ResultBanks(
                    database=database, reader=reader, banks=banks, calibrations=calibrations
                ),
                sessions=sessions,
                derived_sessions=DerivedSessions(
                    database=database,
                    versions=versions,
                    endpoints=endpoints,
                    queue=queue,
                    sessions=sessions,
                ),
                rankings=RankingService(
                    database=database,
                    versions=versions,
                    endpoints=endpoints,
                    sessions=sessions,
                    queue=queue,
                ),
                manual_sessions=manual_sessions,
                simulations=SimulationService(versions, endpoints),
                comparisons=ComparisonService(database, versions),
                gates=GateService(database, sessions, versions),
                baselines=BaselineService(database, versions),
                scorer_trials=ScorerTrials(database, endpoints, transport),
                previews=Previews(database=database, endpoints=endpoints, transport=transport),
                leaderboards=LeaderboardService(database),
                webhooks=WebhookService(
                    database, secrets, guard, calls_private=settings.calls_private
                ),
            )
        finally:
            await endpoints.budgets.close()
            await scorers.aclose()
            close_processes()

"""The suites that a binding subclasses: the case groups put together."""

from __future__ import annotations

from queen_sync.conformance.cases.aging import AgingCases
from queen_sync.conformance.cases.attempts import AttemptCases, ConcurrentAttemptCases
from queen_sync.conformance.cases.by_hand import ByHandCases
from queen_sync.conformance.cases.capacity import CapacityCases
from queen_sync.conformance.cases.cleanup import CleanupCases
from queen_sync.conformance.cases.concurrency import ConcurrencyCases
from queen_sync.conformance.cases.core import CoreCases
from queen_sync.conformance.cases.dedup import DedupCases
from queen_sync.conformance.cases.encryption import EncryptionCases
from queen_sync.conformance.cases.expiry import ExpiryCases
from queen_sync.conformance.cases.features import FeatureCases
from queen_sync.conformance.cases.groups import GroupCases
from queen_sync.conformance.cases.inspection import InspectionCases
from queen_sync.conformance.cases.leases import LeaseCases
from queen_sync.conformance.cases.listings import ListingCases
from queen_sync.conformance.cases.outcomes import OutcomeCases
from queen_sync.conformance.cases.payloads import PayloadCases
from queen_sync.conformance.cases.redrives import RedriveCases
from queen_sync.conformance.cases.retention import RetentionCases
from queen_sync.conformance.cases.retries import RetryCases
from queen_sync.conformance.cases.scopes import ScopeCases
from queen_sync.conformance.cases.seeks import SeekCases
from queen_sync.conformance.cases.server import ServerCases
from queen_sync.conformance.cases.spreading import SpreadCases
from queen_sync.conformance.cases.statistics import StatisticsCases
from queen_sync.conformance.cases.storms import StormCases
from queen_sync.conformance.cases.timing import TimingCases
from queen_sync.conformance.cases.traces import TraceCases
from queen_sync.conformance.cases.transactions import TransactionCases


class BackendConformance(
    CoreCases,
    FeatureCases,
    SpreadCases,
    PayloadCases,
    DedupCases,
    LeaseCases,
    OutcomeCases,
    ExpiryCases,
    RetryCases,
    RedriveCases,
    GroupCases,
    SeekCases,
    ScopeCases,
    CapacityCases,
    TimingCases,
    AgingCases,
    RetentionCases,
    AttemptCases,
    TransactionCases,
    InspectionCases,
    StatisticsCases,
    ListingCases,
    CleanupCases,
    ByHandCases,
    TraceCases,
    EncryptionCases,
):
    """Everything that one caller at a time can see; subclass it and give it a ``backend``."""


class ConcurrencyConformance(StormCases, ConcurrencyCases, ConcurrentAttemptCases):
    """What holds while many threads work; real time, checked from the recorded history."""


class ServerConformance(ServerCases):
    """What only HTTP can show; give it a ``backend`` and an ``http`` client of one server."""

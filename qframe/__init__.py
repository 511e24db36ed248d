"""Message consumers with per-key order, on the database you already run."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from qframe.app.default import (
    apublish,
    consumer,
    default_app,
    middleware,
    publish,
    publish_many,
    pull,
)
from qframe.app.pull import Pull
from qframe.app.qframe import QFrame
from qframe.batching.batcher import Batcher
from qframe.batching.executor import BatchExecutor
from qframe.batching.flusher import Flusher
from qframe.batching.multiple import Group, MultipleQueueFlusher
from qframe.errors import (
    AlreadySettled,
    BadBody,
    BadEffectKey,
    BadHandler,
    BadInput,
    BadKey,
    BadModule,
    BadOption,
    BadRoute,
    BadTable,
    BadTopic,
    BadUrl,
    BatcherClosed,
    BatcherForked,
    CheckerUnavailable,
    CommitRefused,
    ConsumerExists,
    CoordinatorUnavailable,
    HandlerTimeout,
    MessagesGone,
    NotAllowed,
    NotProcessed,
    NotSupported,
    ProducerClosed,
    PublishUnknown,
    QFrameError,
    QueueFull,
    SchemaMismatch,
    StoreDamaged,
    StoreForbidden,
    StoreFull,
    StoreUnavailable,
    TopicFull,
    TopicMismatch,
    UndecodableBody,
    UnknownGroup,
    UnknownTopic,
    WorkerFailed,
    WorkerLost,
    WrongStore,
)
from qframe.hooks import Middleware
from qframe.message import Message
from qframe.options.batch import Batch
from qframe.options.flow import Breaker, RateLimit
from qframe.outcomes import Applied, Moved, Outcome, Published
from qframe.producing.outgoing import Outgoing
from qframe.retry import Backoff, NeedRetry, Reject
from qframe.runtime.process.health import Health
from qframe.schedules.record import Schedule
from qframe.tags import AllOf
from qframe.topic import Kind, Topic

if TYPE_CHECKING:
    from qframe import tables as tables
    from qframe import versions as versions
    from qframe.admin.admin import Admin
    from qframe.admin.timers import Timers
    from qframe.idempotency.database import DatabaseChecker
    from qframe.idempotency.redis import RedisChecker
    from qframe.idempotency.transactional import TransactionalChecker
    from qframe.outbox.outbox import Outbox
    from qframe.schedules.verbs import Schedules
    from qframe.stores.depth import SlotTooDeep
    from qframe.stores.types import SlotSplit
    from qframe.versions.apply import apply_if_newer, apply_next

__version__ = "0.1.0"

__all__ = [
    "Admin",
    "AllOf",
    "AlreadySettled",
    "Applied",
    "Backoff",
    "BadBody",
    "BadEffectKey",
    "BadHandler",
    "BadInput",
    "BadKey",
    "BadModule",
    "BadOption",
    "BadRoute",
    "BadTable",
    "BadTopic",
    "BadUrl",
    "Batch",
    "BatchExecutor",
    "Batcher",
    "BatcherClosed",
    "BatcherForked",
    "Breaker",
    "CheckerUnavailable",
    "CommitRefused",
    "ConsumerExists",
    "CoordinatorUnavailable",
    "DatabaseChecker",
    "Flusher",
    "Group",
    "HandlerTimeout",
    "Health",
    "Kind",
    "Message",
    "MessagesGone",
    "Middleware",
    "Moved",
    "MultipleQueueFlusher",
    "NeedRetry",
    "NotAllowed",
    "NotProcessed",
    "NotSupported",
    "Outbox",
    "Outcome",
    "Outgoing",
    "ProducerClosed",
    "PublishUnknown",
    "Published",
    "Pull",
    "QFrame",
    "QFrameError",
    "QueueFull",
    "RateLimit",
    "RedisChecker",
    "Reject",
    "Schedule",
    "Schedules",
    "SchemaMismatch",
    "SlotSplit",
    "SlotTooDeep",
    "StoreDamaged",
    "StoreForbidden",
    "StoreFull",
    "StoreUnavailable",
    "Timers",
    "Topic",
    "TopicFull",
    "TopicMismatch",
    "TransactionalChecker",
    "UndecodableBody",
    "UnknownGroup",
    "UnknownTopic",
    "WorkerFailed",
    "WorkerLost",
    "WrongStore",
    "__version__",
    "apply_if_newer",
    "apply_next",
    "apublish",
    "consumer",
    "default_app",
    "middleware",
    "publish",
    "publish_many",
    "pull",
]

# These need SQLAlchemy, the client of Redis, or what only workers and operators use, whose import
# takes longer than that of all others: each is loaded when it is first asked for.
_LOADED_BY_USE: Final = {
    "Admin": "qframe.admin.admin",
    "DatabaseChecker": "qframe.idempotency.database",
    "Outbox": "qframe.outbox.outbox",
    "RedisChecker": "qframe.idempotency.redis",
    "Schedules": "qframe.schedules.verbs",
    "SlotSplit": "qframe.stores.types",
    "SlotTooDeep": "qframe.stores.depth",
    "Timers": "qframe.admin.timers",
    "TransactionalChecker": "qframe.idempotency.transactional",
    "apply_if_newer": "qframe.versions.apply",
    "apply_next": "qframe.versions.apply",
}
_MODULES: Final = ("tables", "versions")

if not TYPE_CHECKING:  # a type checker would take any name for one of the package's

    def __getattr__(name: str) -> Any:
        if name in _LOADED_BY_USE:
            return getattr(import_module(_LOADED_BY_USE[name]), name)
        if name in _MODULES:
            return import_module(f"qframe.{name}")
        raise AttributeError(f"module 'qframe' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, *_MODULES})

"""Message consumers with per-key order, on the database you already run."""

from qframe.admin import Admin
from qframe.app import QFrame
from qframe.batching.executor import Batch, BatchExecutor
from qframe.batching.flusher import Flusher
from qframe.batching.multiple import Group, MultipleQueueFlusher
from qframe.consumer import apublish, consumer, default_app, publish, publish_many
from qframe.errors import (
    AlreadySettled,
    BadBody,
    BadHandler,
    BadInput,
    BadKey,
    BadModule,
    BadOption,
    BadTopic,
    BadUrl,
    ConsumerExists,
    CoordinatorUnavailable,
    NotSupported,
    ProducerClosed,
    PublishUnknown,
    QFrameError,
    SchemaMismatch,
    StoreFull,
    StoreUnavailable,
    TopicFull,
    TopicMismatch,
    UndecodableBody,
    UnknownGroup,
    UnknownTopic,
    WorkerFailed,
)
from qframe.idempotency.database import DatabaseChecker
from qframe.idempotency.redis import RedisChecker
from qframe.idempotency.transactional import TransactionalChecker
from qframe.message import Message
from qframe.outbox import Outbox
from qframe.outcomes import Moved, Outcome, Published
from qframe.producer import Outgoing
from qframe.retry import Backoff, NeedRetry, Reject
from qframe.timers import Timers
from qframe.topic import Kind, Topic

__all__ = [
    "Admin",
    "AlreadySettled",
    "Backoff",
    "BadBody",
    "BadHandler",
    "BadInput",
    "BadKey",
    "BadModule",
    "BadOption",
    "BadTopic",
    "BadUrl",
    "Batch",
    "BatchExecutor",
    "ConsumerExists",
    "CoordinatorUnavailable",
    "DatabaseChecker",
    "Flusher",
    "Group",
    "Kind",
    "Message",
    "Moved",
    "MultipleQueueFlusher",
    "NeedRetry",
    "NotSupported",
    "Outbox",
    "Outcome",
    "Outgoing",
    "ProducerClosed",
    "PublishUnknown",
    "Published",
    "QFrame",
    "QFrameError",
    "RedisChecker",
    "Reject",
    "SchemaMismatch",
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
    "apublish",
    "consumer",
    "default_app",
    "publish",
    "publish_many",
]

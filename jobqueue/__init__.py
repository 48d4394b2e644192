"""A durable job queue in your own database: SQLite, or PostgreSQL when one machine is outgrown."""

from jobqueue.aio import AsyncQueue
from jobqueue.backoff import Backoff
from jobqueue.errors import (
    DatabaseUnavailable,
    DuplicateKey,
    InvalidArgument,
    JobQueueError,
    LeaseLost,
    OutcomeUnknown,
    SchemaMismatch,
    WrongUse,
)
from jobqueue.handlers import Discard, Handlers, Retry, Snooze
from jobqueue.queue import Queue
from jobqueue.types import (
    Complete,
    Expired,
    Extended,
    Fail,
    Job,
    JobView,
    Lost,
    Release,
    Requeued,
    Settled,
    Status,
    Swept,
    status_summary,
)
from jobqueue.worker import Worker

__all__ = [
    "AsyncQueue",
    "Backoff",
    "Complete",
    "DatabaseUnavailable",
    "Discard",
    "DuplicateKey",
    "Expired",
    "Extended",
    "Fail",
    "Handlers",
    "InvalidArgument",
    "Job",
    "JobQueueError",
    "JobView",
    "LeaseLost",
    "Lost",
    "OutcomeUnknown",
    "Queue",
    "Release",
    "Requeued",
    "Retry",
    "SchemaMismatch",
    "Settled",
    "Snooze",
    "Status",
    "Swept",
    "Worker",
    "WrongUse",
    "status_summary",
]

"""A durable job queue in your own database: SQLite, or PostgreSQL when one machine is outgrown."""

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

__all__ = [
    "Backoff",
    "Complete",
    "DatabaseUnavailable",
    "DuplicateKey",
    "Expired",
    "Extended",
    "Fail",
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
    "SchemaMismatch",
    "Settled",
    "Status",
    "Swept",
    "WrongUse",
    "status_summary",
]

"""Small histories written by hand: what clients did to one job, and what is said of it."""

from __future__ import annotations

from typing import Any

from jobqueue.transitions import LEASE_EXPIRED
from stress.clauses import Setting
from stress.explode import ANSWERED, OPEN, PHANTOM, Part
from stress.findings import Finding
from stress.history import FOREVER
from stress.judge import Context, Judge
from stress.options import Options

ID = "01900000-0000-7000-8000-000000000001"
SECOND = 1_000_000
LEASE = 10 * SECOND
BASE = 100_000  # The plain backoff of a first attempt, in microseconds.
PAYLOAD = "0:0:0 ok 0"

__all__ = ["ANSWERED", "BASE", "ID", "LEASE", "LEASE_EXPIRED", "OPEN", "PHANTOM", "SECOND", "Script"]


class Script:
    """Calls one after the other, each taking 10 µs, a second apart; the clock of the database is the monotonic one."""

    def __init__(self, *, max_attempts: int = 3, quits: frozenset[str] = frozenset()) -> None:
        self.max_attempts, self.quits = max_attempts, quits
        self.parts: list[Part] = []
        self.row: dict[str, Any] | None = None
        self.now = SECOND
        self.lost: list[list[Any]] = []
        self.cleanups: list[list[Any]] = []

    def part(self, kind: str, client: str, args: Any, reply: Any, certain: int = ANSWERED, took: int = 10) -> int:
        now, self.now = self.now, self.now + SECOND
        ret, high = (FOREVER, FOREVER) if certain == OPEN else (now + took, now)
        self.parts.append([ID, kind, client, now, ret, now, high, args, reply, certain])
        return now

    def enqueue(self, key: str | None = None) -> int:
        spec = [PAYLOAD, "type0", 0, None, None, self.max_attempts, None, key]
        return self.part("enqueue", "producer", [False, spec], ID)

    def claim(self, fence: int, attempts: int, client: str = "w1", **shown: Any) -> int:
        """A dequeue that got the job. Columns that are not given are those of a job enqueued a second after zero."""
        now = shown.get("started", self.now)
        reply = [
            ID, fence, client, "type0", 0, attempts, self.max_attempts, 1, shown.get("due", SECOND), SECOND, now,
            now + LEASE, None, None, shown.get("error"), PAYLOAD,
        ]  # fmt: skip
        return self.part("claim", client, [LEASE, None], reply, took=shown.get("took", 10))

    def complete(self, fence: int, client: str = "w1", reply: str | None = "completed", **rest: Any) -> int:
        result = rest.get("result", str(fence))
        return self.part("settle", client, ["c", ID, fence, client, result], reply, rest.get("certain", ANSWERED))

    def fail(self, fence: int, reply: str | None = "failed", client: str = "w1", for_good: bool = False) -> int:
        return self.part("settle", client, ["f", ID, fence, client, "e", None, for_good], reply)

    def release(self, fence: int, reply: str = "pending", begun: bool = True, client: str = "w1") -> int:
        return self.part("settle", client, ["l", ID, fence, client, begun, None], reply)

    def extend(self, fence: int, reply: int | None, client: str = "w1") -> int:
        return self.part("extend", client, [ID, fence, client, LEASE], reply)

    def look(self, fence: int, lease: int, client: str = "sweeper") -> int:
        return self.part("look", client, [fence, lease], None)

    def sweep(self, fence: int, lease: int, reply: str | None, client: str = "sweeper") -> int:
        return self.part("sweep", client, [fence, lease], reply)

    def operate(self, kind: str, reply: Any, certain: int = ANSWERED) -> int:
        return self.part(kind, "canceller", None, reply, certain)

    def begin(self, fence: int, client: str = "w1") -> None:
        self.parts.append([ID, "begin", client, self.now, self.now, 0, 0, fence, None, ANSWERED])

    def wait(self, microseconds: int) -> None:
        self.now += microseconds

    def ends(self, status: str, attempts: int, **columns: Any) -> None:
        """The row as the last look shows it."""
        self.row = {
            "seq": 1, "id": ID, "type": "type0", "payload": PAYLOAD, "status": status, "priority": 0,
            "attempts": attempts, "max_attempts": self.max_attempts, "scheduled_at": SECOND, "created_at": SECOND,
            "started_at": None, "completed_at": None, "lease_expires_at": None, "worker": None, "timeout": None,
            "unique_key": None, "error": None, "result": None, **columns,
        }  # fmt: skip

    def findings(self) -> list[Finding]:
        options = Options(base=BASE / SECOND)
        setting = Setting(options.rules, 2 * SECOND, self.quits)
        context = Context(setting, {}, self.lost, self.cleanups, (self.now, self.now + 10))
        judge = Judge(context)
        judge.judge(self.parts, {} if self.row is None else {ID: self.row})
        assert not judge.judged.undecided
        return judge.judged.findings

    def clauses(self) -> set[str]:
        return {finding.clause for finding in self.findings()}

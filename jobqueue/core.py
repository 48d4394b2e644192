"""What a worker decides (spec §9), sans-I/O: what happened goes in, what to do comes out.

``Core.handle(event)`` takes an event and returns effects; it reads no clock, starts no thread and never blocks. The
shell around it (shift.py) performs the effects and reports what became of them. Times are seconds of a monotonic clock.
At most one exchange, one renewal, one look and one cleanup are under way at any time, so their answers need no names;
everything else is keyed by claim (W-5): by the Job, which equals nothing but itself.

The life of a claim in here: *waiting* (handed to the line, not known to have begun) → *running* → *ended* (its
settlement is in the outbox, or under way) → answered, and forgotten. Until it is answered it is renewed (W-2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from jobqueue.events import (
    INTERRUPTED,
    LOST,
    TIMEOUT,
    Abandon,
    AskDue,
    Broken,
    Changed,
    Cleaned,
    Cleanup,
    Dropped,
    DueKnown,
    DueUnknown,
    Effect,
    End,
    Event,
    Exchange,
    Exchanged,
    ExchangeFailed,
    Finish,
    Look,
    Looked,
    LookFailed,
    Outcome,
    Progress,
    Recorded,
    Renew,
    Renewed,
    RenewFailed,
    Rest,
    Sleep,
    Start,
    StopAsked,
    Sweep,
    Tell,
    Tick,
    Withdraw,
    Withdrawn,
)
from jobqueue.types import Expired, Extended, Fail, Job, Release, Settlement

SOON = 0.05  # Seconds of handler time that may stand in line, if a fifth of the heartbeat is not less still.
FIRST_POLL = 0.05  # Seconds from the first poll that found nothing to the next one; then doubling.
SPACING = (0.001, 0.05)  # Seconds between polls that wake-ups ask for and that find nothing: from, to.
PAUSES = (0.05, 0.5)  # Seconds between tries while the database is busy or away: from, to.
LOOKS_APART = 1.25  # Heartbeats from one look's answer to the next look: more than one (W-3).
CLEANUP_EVERY = 60.0
SETTLED = End.SETTLED  # Looked up once: an enum's member costs more than the comparison with it.
LAST_WORD = 1.0  # Seconds after the grace time in which outcomes are still recorded, before the worker ends regardless.


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user decides. Durations are seconds; ``batch`` bounds the claims that wait for a handler."""

    concurrency: int = 1
    batch: int = 100
    lease: float = 30.0
    heartbeat: float = 10.0
    poll_interval: float = 2.0
    grace: float = 8.0
    cleanup: bool = False
    drain: bool = False


@dataclass(slots=True)
class _Claim:
    """What is known of one claim that has not been answered yet."""

    job: Job
    confirmed: float  # When its lease was last known to be whole.
    claimed: float
    since: float = inf  # When its handler began, once that is known.
    ended: bool = False
    lost: bool = False
    abandoned: str | None = None  # Why its slot was asked back.

    @property
    def deadline(self) -> float:
        return inf if self.job.timeout_us is None else self.since + self.job.timeout_us / 1_000_000


class Core:
    """The state of one worker. ``handle`` is the only way in, and its effects the only way out."""

    def __init__(self, settings: Settings, at: float) -> None:
        self.settings = settings
        self.held: dict[Job, _Claim] = {}
        self.waiting: dict[Job, _Claim] = {}  # Oldest first.
        self.running: dict[Job, _Claim] = {}
        self.finished = False
        self._outbox: list[Settlement] = []
        self._outbox_since = inf
        self._sent: tuple[Settlement, ...] | None = None  # None: no exchange under way.
        self._asked = 0
        self._ended_since = 0  # Handlers that ended since the last exchange.
        self._pace: float | None = None  # Seconds that a handler takes: follows a rise at once, a fall by halves.
        self._soon = min(settings.heartbeat / 5, SOON)
        # Polling
        self._poll_at = at
        self._polled_at = -inf
        self._interval = min(FIRST_POLL, settings.poll_interval)
        self._spacing = 0.0
        self._woken = False
        self._pressed = False
        self._want_due = False
        self._asking_due = False
        self._rest: Rest | None = None
        # While the database is away
        self._retry_at = -inf
        self._pause = PAUSES[0]
        # Leases
        self._beat_at = inf
        self._renewing: tuple[_Claim, ...] | None = None
        self._withdrawing: tuple[Job, ...] = ()
        self._deadline_at = inf
        self._seen: frozenset[Expired] = frozenset()
        self._seen_at = inf
        self._looking_since: float | None = None
        self._look_at = at
        self._cleaning = False
        self._clean_at = at if settings.cleanup else inf
        # The end
        self._stopping = False
        self._grace_until = inf
        self._end_by = inf
        self._sleep_until = -inf
        self._effects: list[Effect] = []
        self._on: dict[type[Any], Callable[[Any], None]] = {
            Tick: lambda event: None,
            Progress: self._progress,
            Exchanged: self._exchanged,
            ExchangeFailed: self._exchange_failed,
            DueKnown: self._due_known,
            DueUnknown: self._due_unknown,
            Changed: self._changed,
            Withdrawn: self._withdrawn,
            Renewed: self._renewed,
            RenewFailed: self._renew_failed,
            Looked: self._looked,
            LookFailed: self._look_failed,
            Cleaned: self._cleaned,
            StopAsked: self._stop_asked,
            Broken: self._broken,
        }

    def handle(self, event: Event) -> list[Effect]:
        """Take in what happened; what to do now, in this order."""
        if self.finished:
            return []
        effects: list[Effect] = []
        self._effects = effects
        self._on[type(event)](event)
        self._think(event.at)
        return effects

    def _think(self, at: float) -> None:
        """What the time asks for. Whether it does is tested here, for mostly it does not."""
        if at >= self._deadline_at:
            self._end_overdue(at)
        if self.waiting:
            self._withdraw_stale(at)
        if self._stopping:
            self._end_grace(at)
        else:
            if at >= self._look_at:
                self._look(at)
            if at >= self._clean_at:
                self._clean(at)
        if at >= self._beat_at:
            self._beat(at)
        if self._sent is None and not self._asking_due:
            self._order(at)
        if self._stopping:
            self._finish(at)
        if not self.finished:
            self._sleep(at)

    def _do(self, effect: Effect) -> None:
        self._effects.append(effect)

    # Handlers

    def _progress(self, event: Progress) -> None:
        for job, since in event.running:
            claim = self.waiting.pop(job, None)
            if claim is not None:
                self._begun(claim, since)
        if event.outcomes:
            self._measure(event.outcomes)
            for outcome in event.outcomes:
                self._end(outcome, event.at)

    def _begun(self, claim: _Claim, since: float) -> None:
        claim.since = since
        self.running[claim.job] = claim
        self._deadline_at = min(self._deadline_at, claim.deadline)

    def _measure(self, outcomes: Sequence[Outcome]) -> None:
        self._ended_since += len(outcomes)
        mean = sum(outcome.seconds for outcome in outcomes) / len(outcomes)
        self._pace = mean if self._pace is None or mean > self._pace else (self._pace + mean) / 2

    def _end(self, outcome: Outcome, at: float) -> None:
        """The claim's turn is over: its one settlement goes to the outbox (W-4)."""
        job, what = outcome.job, outcome.what
        claim = self.held.get(job)
        if claim is None or claim.ended:
            if not isinstance(what, End):
                self._do(Dropped(job, "its attempt had ended before"))
            return
        self.waiting.pop(job, None)
        self.running.pop(job, None)
        if claim.lost or job.settled or what is SETTLED:
            del self.held[job]
            if claim.lost and not job.settled:
                self._do(Dropped(job, LOST))
        else:
            self._settle(claim, _given_up(claim, what) if isinstance(what, End) else what, at)

    def _settle(self, claim: _Claim, settlement: Settlement, at: float) -> None:
        claim.ended = True
        if not self._outbox:
            self._outbox_since = at
        self._outbox.append(settlement)

    def _end_overdue(self, at: float) -> None:
        """W-6. The slot is asked back; what comes first decides: the handler's own end, or the slot's."""
        for claim in tuple(self.running.values()):
            if claim.deadline <= at and claim.abandoned is None:
                claim.abandoned = TIMEOUT
                self._do(Abandon(claim.job, TIMEOUT))
        waiting = (claim.deadline for claim in self.running.values() if claim.abandoned is None)
        self._deadline_at = min(waiting, default=inf)

    def _withdraw_stale(self, at: float) -> None:
        """A claim that still stands in line after a heartbeat, or at a stop, is given back: it could not start soon."""
        if self._withdrawing:
            return
        patience = -inf if self._stopping else self.settings.heartbeat
        stale = []
        for job, claim in self.waiting.items():
            if at < claim.claimed + patience:
                break
            stale.append(job)
        if stale:
            self._withdrawing = tuple(stale)
            self._do(Withdraw(self._withdrawing))

    def _withdrawn(self, event: Withdrawn) -> None:
        asked, self._withdrawing = self._withdrawing, ()
        unbegun = set(event.jobs)
        for job in asked:
            claim = self.waiting.pop(job, None)
            if claim is None:  # It has begun, and ended, meanwhile.
                continue
            if job not in unbegun:
                self._begun(claim, event.at)
            elif claim.lost:
                del self.held[job]
            else:
                self._settle(claim, Release(job, begun=False), event.at)

    # Exchanges

    def _order(self, at: float) -> None:
        """What the one who talks to the database is to do next: an exchange, a question, or rest."""
        room = self._room(at)
        if at >= self._retry_at:
            if self._must_settle(at) or (room > 0 and at >= self._poll_at):
                self._exchange(room, at)
                return
            if self._want_due and room > 0:
                self._want_due, self._asking_due = False, True
                self._rest = None
                self._do(AskDue())
                return
        self._do_rest(room, at)

    def _do_rest(self, room: int, at: float) -> None:
        until = self._poll_at if room > 0 else inf
        if self._outbox:
            until = min(until, self._outbox_since + self._soon)
        rest = Rest(max(until, self._retry_at), room > 0 and not self._woken and at >= self._retry_at)
        if rest != self._rest:
            self._rest = rest
            self._do(rest)

    def _room(self, at: float) -> int:
        """How many more claims can start soon (W-1): one for each free slot, and more while handlers are quick."""
        if self._stopping:
            return 0
        settings, running = self.settings, len(self.running)
        limit = settings.concurrency
        if self.waiting:  # They take the free slots at once; what is beyond them stands in line.
            return max(0, limit - running - len(self.waiting))
        if self._pace is not None and self._pace < self._soon:
            stuck = sum(at - claim.since > self._soon for claim in self.running.values())
            quick = int(self._soon / max(self._pace, 1e-6)) * (limit - stuck)
            # The line doubles at most, so that one quick handler does not fetch a crowd of slow ones.
            limit = max(limit, min(stuck + quick, settings.batch, running + limit + 2 * self._ended_since))
        return max(0, limit - running)

    def _must_settle(self, at: float) -> bool:
        """Outcomes are sent together when no claim is left in line; a slow handler in between does not hold them up."""
        if not self._outbox:
            return False
        return not self.waiting or self._stopping or at >= self._outbox_since + self._soon

    def _exchange(self, n: int, at: float) -> None:
        self._sent, self._asked = tuple(self._outbox), n
        self._outbox, self._outbox_since = [], inf
        self._ended_since = 0
        self._rest = None
        if n:
            self._polled_at = at
        self._do(Exchange(self._sent, n))

    def _exchanged(self, event: Exchanged) -> None:
        sent, self._sent = self._sent, None
        assert sent is not None, "an answer follows an exchange"
        self._pause, self._retry_at = PAUSES[0], -inf
        if sent:
            for settlement in sent:
                self.held.pop(settlement.job, None)
            self._do(Recorded(sent, event.replies))
        if event.jobs:
            self._take(event)
        if self._asked:
            self._polled(len(event.jobs), event.at)

    def _take(self, event: Exchanged) -> None:
        at = event.at
        if not self.held:
            self._beat_at = inf
        self._beat_at = min(self._beat_at, at + self.settings.heartbeat)
        for job in event.jobs:
            self.held[job] = claim = _Claim(job, at, at)
            if self._stopping:  # Claimed while the stop was on its way (W-7).
                self._settle(claim, Release(job, begun=False), at)
            else:
                self.waiting[job] = claim
        if not self._stopping:
            self._do(Start(tuple(event.jobs), at + self.settings.lease))

    def _polled(self, found: int, at: float) -> None:
        """W-9: the interval grows while nothing is found, and starts again at the first job."""
        if found:
            self._interval, self._spacing = min(FIRST_POLL, self.settings.poll_interval), 0.0
            self._pressed = self._want_due = False
            self._poll_at = at if found >= self._asked else at + self._interval
        else:
            self._spacing = min(max(2 * self._spacing, SPACING[0]), SPACING[1]) if self._woken else 0.0
            self._poll_at = at + self._interval
            self._interval = min(2 * self._interval, self.settings.poll_interval)
            self._want_due = True
        self._woken = False

    def _due_known(self, event: DueKnown) -> None:
        """After a poll that found nothing. A due job all the same was locked by another, or became due just now."""
        self._asking_due = False
        if event.seconds is None:
            self._drained(event.at)
        elif event.seconds > 0:
            self._pressed = False
            self._poll_at = min(self._poll_at, event.at + event.seconds)
            self._drained(event.at)
        elif not self._pressed:  # Only once: who holds the lock may take its time, and two clocks may differ.
            self._pressed = True
            self._poll_at = event.at

    def _due_unknown(self, event: DueUnknown) -> None:
        self._asking_due = False

    def _drained(self, at: float) -> None:
        """No wanted job is due: a drain is at its end, unless a claim of its own may still fail and come again."""
        if self.settings.drain and not self.held and not self._stopping:
            self._stopping, self._grace_until, self._end_by = True, at, at

    def _changed(self, event: Changed) -> None:
        """A wake-up. Changes that bring nothing (other workers' outcomes) are looked at less and less often."""
        self._woken = True
        self._interval = min(FIRST_POLL, self.settings.poll_interval)
        self._poll_at = min(self._poll_at, max(event.at, self._polled_at + self._spacing))

    def _exchange_failed(self, event: ExchangeFailed) -> None:
        """W-8: the same settlements again, before anything newer; their claims are still renewed."""
        assert self._sent is not None, "a failure follows an exchange"
        if self._sent:
            self._outbox_since = min(self._outbox_since, event.at)
        self._outbox[:0] = self._sent
        self._sent = None
        self._retry_at = event.at + self._pause
        self._pause = min(2 * self._pause, PAUSES[1])

    # Leases

    def _beat(self, at: float) -> None:
        """W-2: renew what was not confirmed for half a heartbeat, once the first of them needs it."""
        if self._renewing is not None:
            return
        half = self.settings.heartbeat / 2
        kept = [claim for claim in self.held.values() if not claim.lost and not claim.job.settled]
        due = tuple(claim for claim in kept if at - claim.confirmed >= half)
        first = min((claim.confirmed for claim in kept), default=inf)
        if at < first + self.settings.heartbeat:
            self._beat_at = first + self.settings.heartbeat
            return
        self._renewing = due
        self._do(Renew(tuple(claim.job for claim in due)))

    def _renewed(self, event: Renewed) -> None:
        renewed, self._renewing = self._renewing, None
        assert renewed is not None, "an answer follows a renewal"
        for claim, reply in zip(renewed, event.replies, strict=True):
            if isinstance(reply, Extended):
                claim.confirmed = event.at
            elif not claim.ended and not claim.job.settled and claim.job in self.held:
                claim.lost = True
                self._do(Tell(claim.job, LOST))
            # An ended claim may just have been settled by an exchange that is under way: that reply tells.
        self._beat_at = event.at  # The next thought about it finds the time.

    def _renew_failed(self, event: RenewFailed) -> None:
        self._renewing = None
        self._beat_at = event.at + min(max(self.settings.heartbeat / 10, PAUSES[0]), PAUSES[1])

    def _look(self, at: float) -> None:
        if self._looking_since is None:
            self._looking_since = at
            self._do(Look())

    def _looked(self, event: Looked) -> None:
        """W-3: sweep what this look and the last, more than a heartbeat apart, saw unmoved. What is held here lives."""
        since, self._looking_since = self._looking_since, None
        assert since is not None, "an answer follows a look"
        if since - self._seen_at > self.settings.heartbeat:
            mine = {job.key for job in self.held}
            twice = tuple(look for look in event.found if look in self._seen and (look.id, look.fence) not in mine)
            if twice and not self._stopping:
                self._do(Sweep(twice))
        self._seen, self._seen_at = frozenset(event.found), event.at
        self._look_at = event.at + LOOKS_APART * self.settings.heartbeat

    def _look_failed(self, event: LookFailed) -> None:
        self._looking_since = None
        self._look_at = event.at + self.settings.heartbeat

    def _clean(self, at: float) -> None:
        if not self._cleaning:
            self._cleaning = True
            self._do(Cleanup())

    def _cleaned(self, event: Cleaned) -> None:
        self._cleaning = False
        self._clean_at = event.at + CLEANUP_EVERY

    # The end (W-7)

    def _stop_asked(self, event: StopAsked) -> None:
        if not self._stopping:
            self._stopping = True
            self._grace_until = event.at + self.settings.grace
        else:
            self._grace_until = min(self._grace_until, event.at)
        self._end_by = min(self._end_by, self._grace_until + LAST_WORD)

    def _broken(self, event: Broken) -> None:
        """Nothing can be recorded any more: handlers are told, and the worker ends."""
        self._stopping, self._grace_until, self._end_by = True, event.at, event.at

    def _end_grace(self, at: float) -> None:
        if at < self._grace_until:
            return
        for claim in self.running.values():
            if claim.abandoned is None:
                claim.abandoned = INTERRUPTED
                self._do(Abandon(claim.job, INTERRUPTED))

    def _finish(self, at: float) -> None:
        over = not self.held and self._sent is None
        if over or at >= self._end_by:
            self.finished = True
            self._do(Finish(sum(not claim.lost for claim in self.held.values())))

    def _sleep(self, at: float) -> None:
        until = self._deadline_at
        if self._renewing is None and self.held:
            until = min(until, self._beat_at)
        if self.waiting and not self._withdrawing:
            until = min(until, next(iter(self.waiting.values())).claimed + self.settings.heartbeat)
        if self._stopping:
            until = min(until, self._grace_until if at < self._grace_until else self._end_by)
        else:
            if self._looking_since is None:
                until = min(until, self._look_at)
            if not self._cleaning:
                until = min(until, self._clean_at)
        if until < self._sleep_until or self._sleep_until <= at:
            self._sleep_until = until
            self._do(Sleep(until))


def _given_up(claim: _Claim, how: End) -> Settlement:
    """What becomes of an attempt whose slot was asked back, or that was passed over."""
    if claim.abandoned == TIMEOUT:
        return Fail(claim.job, TIMEOUT)
    return Release(claim.job, begun=how is not End.SKIPPED)

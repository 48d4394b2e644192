--------------------------- MODULE JobQueueTimed ----------------------------
(***************************************************************************)
(* L2 with a clock: due times, backoff, lease expiry, order, retention, and  *)
(* the two looks of W-3 while somebody else holds the write lock. Each action *)
(* is one of JobQueueLease with its instants added; JobQueueLease is refined. *)
(*                                                                         *)
(* An id is a number that rises with each enqueue, so it stands for seq.     *)
(* Instants are whole numbers from 1; 0 stands for null.                    *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS
  Jobs, NoJob, Once, Limit, Keyed, MaxFence, MaxGiven, Told, Workers, Slots, Begins, LostOps,
  Urgent,        \* the jobs of priority 1; the others have 0
  Horizon,       \* bound of the model: the last instant
  LeaseTime,     \* a lease lasts this long
  Base, Cap, JitterPercent,
  Given,         \* delays that a failing or snoozing handler may ask for
  Delays,        \* delays that an enqueue may ask for
  Past,          \* BOOLEAN: an enqueue may give a scheduled_at long past (the first instant)
  Retention,
  Heartbeat,     \* two looks must be further apart than this
  Looks,         \* BOOLEAN: workers look and sweep
  Operator,      \* BOOLEAN: an operator sweeps without looking twice, requeues, cancels, cleans up
  Outsider,      \* BOOLEAN: another process may hold SQLite's write lock as long as it likes
  Diligent,      \* BOOLEAN: holders extend at every opportunity
  ClockSteps     \* BOOLEAN: the clock may be set back

VARIABLES status, attempts, fence, reply, worker, claims, begun, starts, since,
  now,
  scheduled, created, until, ended,  \* scheduled_at, created_at, lease_expires_at, completed_at
  looks,                             \* first looks: [by, job, fence, until, at, touched]
  lock                               \* "free", or "held" by the outsider

L == INSTANCE JobQueueLease

leased  == <<status, attempts, fence, reply, worker, claims, begun, starts, since>>
columns == <<scheduled, created, until, ended>>
vars    == <<leased, now, columns, looks, lock>>
Rows    == <<status, attempts, fence, worker, claims, begun, starts, since, now, columns, looks, lock>>

Null        == 0
Claimable   == {"pending", "failed"}
J           == reply'.job
Priority(j) == IF j \in Urgent THEN 1 ELSE 0

Due(j)     == status[j] \in Claimable /\ scheduled[j] <= now
Expired(j) == status[j] = "running" /\ until[j] <= now

\* Section 6: priority descending, scheduled_at, seq.
Before(i, j) ==
  \/ Priority(i) > Priority(j)
  \/ Priority(i) = Priority(j) /\ scheduled[i] < scheduled[j]
  \/ Priority(i) = Priority(j) /\ scheduled[i] = scheduled[j] /\ i < j

Least(a, b) == IF a < b THEN a ELSE b
Later(a, b) == IF a > b THEN a ELSE b
Plain(n)  == Least(Cap, Base * 2^(n - 1))
Jitter(n) == (Plain(n) * JitterPercent) \div 100

Init ==
  /\ L!Init
  /\ now = 1
  /\ scheduled = [j \in Jobs |-> Null] /\ created = [j \in Jobs |-> Null]
  /\ until = [j \in Jobs |-> Null] /\ ended = [j \in Jobs |-> Null]
  /\ looks = {} /\ lock = "free"

-----------------------------------------------------------------------------
Free        == lock = "free"
Timeless    == UNCHANGED <<now, lock>>
Unseen      == UNCHANGED looks
Col(v, j, x) == [v EXCEPT ![j] = x]

\* Leaving running: the lease is null; completed_at exactly where the job is now terminal.
Left(j, at) ==
  /\ until' = Col(until, j, Null)
  /\ ended' = Col(ended, j, IF status'[j] \in {"completed", "dead"} THEN now ELSE Null)
  /\ scheduled' = Col(scheduled, j, at)
  /\ UNCHANGED created

Enqueue(j) == \* T-1
  /\ Free /\ L!Enqueue(j)
  /\ \A i \in Jobs : i < j => status[i] # "absent"
  /\ \E at \in {now + d : d \in Delays} \cup (IF Past THEN {1} ELSE {}) : scheduled' = Col(scheduled, j, at)
  /\ created' = Col(created, j, now)
  /\ UNCHANGED <<until, ended>> /\ Timeless /\ Unseen

Dequeue(j, w) == \* T-2
  /\ Free /\ L!Dequeue(j, w)
  /\ Due(j)
  /\ \A i \in Jobs \ {j} : Due(i) => Before(j, i)
  /\ until' = Col(until, j, now + LeaseTime)
  /\ UNCHANGED <<scheduled, created, ended>> /\ Timeless /\ Unseen

DequeueNone == \* T-2
  /\ Free /\ L!DequeueNone
  /\ \A j \in Jobs : ~Due(j)
  /\ UNCHANGED columns /\ Timeless /\ Unseen

Complete(c) == \* T-3
  /\ Free /\ L!Complete(c)
  /\ Left(c.job, scheduled[c.job])
  /\ Timeless /\ Unseen

FailRetry(c) == \* T-4
  /\ Free /\ L!FailRetry(c)
  /\ \E d \in Given \cup (Plain(attempts[c.job])..(Plain(attempts[c.job]) + Jitter(attempts[c.job]))) :
       Left(c.job, now + d)
  /\ Timeless /\ Unseen

FailForGood(c) == \* T-5
  /\ Free /\ (L!FailLast(c) \/ L!Discard(c) \/ L!Interrupt(c))
  /\ Left(c.job, scheduled[c.job])
  /\ Timeless /\ Unseen

Release(c) == \* T-6
  /\ Free /\ (L!Release(c) \/ L!ReleaseBegun(c))
  /\ \/ Left(c.job, scheduled[c.job])
     \/ \E d \in Given : Left(c.job, now + d)
  /\ Timeless /\ Unseen

Extend(c) == \* T-7
  /\ Free /\ L!Extend(c)
  /\ until' = Col(until, c.job, Later(until[c.job], now + LeaseTime))
  /\ looks' = {[l EXCEPT !.touched = l.touched \/ (l.job = c.job /\ l.fence = c.fence)] : l \in looks}
  /\ UNCHANGED <<scheduled, created, ended>> /\ Timeless

LeaseLost(c) == \* G-3
  /\ Free /\ \E op \in LostOps : L!LeaseLost(op, c)
  /\ UNCHANGED columns /\ Timeless /\ Unseen

Swept(j) ==
  /\ L!SweepRetry(j) \/ L!SweepLast(j)
  /\ IF status'[j] = "dead"
     THEN Left(j, scheduled[j])
     ELSE \E d \in Plain(attempts[j])..(Plain(attempts[j]) + Jitter(attempts[j])) : Left(j, now + d)

\* An operator's sweep: looks and sweeps in one transaction.
Sweep(j) == \* T-8
  /\ Operator /\ Free
  /\ Expired(j)
  /\ Swept(j)
  /\ Timeless /\ Unseen

\* A worker's first look. It keeps what it saw; looks at claims that have moved on are dropped.
Look(w) == \* W-3
  LET seen == {[by |-> w, job |-> j, fence |-> fence[j], until |-> until[j], at |-> now, touched |-> FALSE] :
                 j \in {i \in Jobs : Expired(i)}}
      old  == {l \in looks : l.by = w /\ \E s \in seen : s.job = l.job /\ s.fence = l.fence /\ s.until = l.until}
      new  == {s \in seen : \A l \in old : l.job # s.job}
  IN /\ Looks /\ Free
     /\ looks' = {l \in looks : l.by # w} \cup old \cup new
     /\ L!Silent /\ UNCHANGED columns /\ Timeless

FarApart(l) == now - l.at > Heartbeat
OneLook(l)  == TRUE   \* in its place in a must-fail model: every look sweeps

\* The second look and the sweep, one transaction.
SweepLooked(w, j) == \* T-8 W-3
  \E l \in looks :
    /\ Looks /\ Free
    /\ l.by = w /\ l.job = j
    /\ FarApart(l)
    /\ Expired(j)
    /\ fence[j] = l.fence
    /\ until[j] = l.until
    /\ Swept(j)
    /\ looks' = looks \ {l}
    /\ Timeless

Cancel(j) == \* T-9
  /\ Operator /\ Free /\ L!Cancel(j)
  /\ Left(j, scheduled[j])
  /\ Timeless /\ Unseen

Requeue(j) == \* T-10
  /\ Operator /\ Free /\ L!Requeue(j)
  /\ Left(j, IF attempts[j] = 0 THEN scheduled[j] ELSE created[j])
  /\ Timeless /\ Unseen

Cleanup(j) == \* T-11
  /\ Operator /\ Free /\ L!Cleanup(j)
  /\ ended[j] <= now - Retention
  /\ scheduled' = Col(scheduled, j, Null) /\ created' = Col(created, j, Null)
  /\ until' = Col(until, j, Null) /\ ended' = Col(ended, j, Null)
  /\ Timeless /\ Unseen

Crash(w) == \* G-18
  /\ L!Crash(w)
  /\ looks' = {l \in looks : l.by # w}
  /\ UNCHANGED columns /\ Timeless

\* A diligent holder has extended before time goes on, and before the lock is taken again.
Renewed == Diligent => \A c \in claims : L!Holds(c) => until[c.job] > now

Tick == \* G-10
  /\ now < Horizon
  /\ Free => Renewed
  /\ now' = now + 1
  /\ L!Silent /\ UNCHANGED <<columns, looks, lock>>

StepBack == \* G-23
  /\ ClockSteps /\ now > 1
  /\ now' = now - 1
  /\ L!Silent /\ UNCHANGED <<columns, looks, lock>>

TakeLock == \* W-3
  /\ Outsider /\ Free /\ Renewed
  /\ lock' = "held"
  /\ L!Silent /\ UNCHANGED <<now, columns, looks>>

\* (For a must-fail model: no holder had a chance since it was last free.)
TakeLockAnyTime ==
  /\ Outsider /\ Free
  /\ lock' = "held"
  /\ L!Silent /\ UNCHANGED <<now, columns, looks>>

FreeLock == \* W-3
  /\ lock = "held"
  /\ lock' = "free"
  /\ L!Silent /\ UNCHANGED <<now, columns, looks>>

Next ==
  \/ DequeueNone \/ Tick \/ StepBack \/ TakeLock \/ FreeLock
  \/ \E j \in Jobs : Enqueue(j) \/ Sweep(j) \/ Cancel(j) \/ Requeue(j) \/ Cleanup(j)
  \/ \E j \in Jobs, w \in Workers : Dequeue(j, w)
  \/ \E c \in L!AllClaims :
       \/ Complete(c) \/ FailRetry(c) \/ FailForGood(c) \/ Release(c)
       \/ Extend(c) \/ LeaseLost(c)
  \/ \E w \in Workers : Look(w) \/ Crash(w)
  \/ \E w \in Workers, j \in Jobs : SweepLooked(w, j)

Spec == Init /\ [][Next]_vars

RefinesLease == L!SpecTold

-----------------------------------------------------------------------------
Is(op, answer) == reply'.op = op /\ reply'.answer = answer
SweptNow       == reply'.op = "sweep" /\ reply'.answer # "false"

G1_WellFormed == \* G-1
  \A j \in Jobs :
    /\ until[j] # Null <=> status[j] = "running"
    /\ ended[j] # Null <=> status[j] \in {"completed", "dead"}
    /\ scheduled[j] # Null <=> status[j] \notin {"absent", "deleted"}

G10_NotBeforeDue == \* G-10
  [][Is("dequeue", "job") => scheduled[J] <= now]_vars

G11_BackoffBounds == \* G-11
  [][reply'.op \in {"fail", "sweep"} /\ status'[J] = "failed" =>
       LET d == scheduled'[J] - now
       IN \/ Plain(attempts[J]) <= d /\ d * 100 <= Plain(attempts[J]) * (100 + JitterPercent)
          \/ reply'.op = "fail" /\ d \in Given]_vars

G11_PlainGrowsToCap == \* G-11
  /\ Plain(1) = Least(Base, Cap)
  /\ \A n \in 1..6 : Plain(n) <= Plain(n + 1) /\ Plain(n) <= Cap
  /\ \A n \in 1..6 : Plain(n + 1) = Least(Cap, 2 * Plain(n))

G12_FirstInOrder == \* G-12
  [][Is("dequeue", "job") => \A i \in Jobs \ {J} :
       status[i] \in Claimable /\ scheduled[i] <= now =>
         \/ Priority(J) > Priority(i)
         \/ Priority(J) = Priority(i) /\ scheduled[J] < scheduled[i]
         \/ Priority(J) = Priority(i) /\ scheduled[J] = scheduled[i] /\ J < i]_vars

G13_NoFalseEmpty == \* G-13
  [][Is("dequeue", "none") => \A j \in Jobs : ~(status[j] \in Claimable /\ scheduled[j] <= now)]_vars

G14_OldEnough == \* G-14
  [][Is("cleanup", "deleted") => ended[J] # Null /\ ended[J] + Retention <= now]_vars

G17_ExtendNeverShortens == \* G-17
  [][Is("extend", "ok") => until'[J] >= until[J] /\ until'[J] >= now + LeaseTime]_vars

G19_OldPlaceInLine == \* G-19
  [][Is("requeue", "true") =>
       scheduled'[J] = IF attempts[J] = 0 THEN scheduled[J] ELSE created[J]]_vars

G22_NothingElseChanges == \* G-22
  [][\A j \in Jobs :
       <<scheduled'[j], created'[j], until'[j], ended'[j]>> # <<scheduled[j], created[j], until[j], ended[j]>>
         => reply'.answer \notin {"LeaseLost", "none", "DuplicateKey"} /\ reply'.job = j]_vars

T8_SweptOnlyExpired == \* T-8
  [][SweptNow => until[J] <= now]_vars

\* If the holder has extended since the first look, the claim is not swept.
G23_ExtendedIsNotSwept == \* G-23
  [][SweptNow => \A l \in looks \ looks' : ~l.touched]_vars

\* With diligent holders: no claim is swept whose worker still knows it.
W3_LiveHolderKept == \* W-3
  [][SweptNow => L!Current(J) \notin claims]_vars
=============================================================================

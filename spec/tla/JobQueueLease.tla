--------------------------- MODULE JobQueueLease ----------------------------
(***************************************************************************)
(* L2: workers that hold claims, renew them, pause, crash and come back.    *)
(* Refines L1 (JobQueue) with the same status, attempts, fence and reply.   *)
(*                                                                         *)
(* There is no clock: a sweep may hit any running job at any time, so that   *)
(* safety covers every clock fault, pause and delay. A worker whose claim    *)
(* was swept, cancelled or given to another keeps it (a zombie) until the    *)
(* database tells it LeaseLost. The same worker may then hold two claims of  *)
(* one job. A crash forgets all claims of a worker; the worker comes back    *)
(* under its old name, the worst case: the fence alone must protect.         *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets

CONSTANTS
  Jobs, NoJob, Once, Limit, Keyed, MaxFence, Told,
  Workers,
  MaxGiven,    \* bound of the model: no more claims of all jobs together than this
  Slots,       \* no worker holds more claims than this (its concurrency)
  Begins,      \* the jobs whose begin is modelled; begun matters only where max_attempts = 1
  LostOps      \* with which of the holder's operations a stale holder learns of its loss

VARIABLES status, attempts, fence, reply,
  worker,      \* job -> the worker it was given to; "none" unless running
  claims,      \* what workers hold: a set of [job, fence, worker], current or stale
  begun,       \* the claims whose handler runs
  starts,      \* job -> begins of claims that were given since enqueue or requeue
  since        \* job -> fence at the last requeue

Contract == INSTANCE JobQueue

rows    == <<status, attempts, fence, worker>>
memory  == <<claims, begun>>
history == <<starts, since>>
vars    == <<status, attempts, fence, reply, worker, claims, begun, starts, since>>
Rows    == <<rows, memory, history>>   \* the VIEW

NoWorker   == "none"
Max(j)     == Contract!Max(j)
KeyFree(j) == Contract!KeyFree(j)
Given      == Cardinality(UNION {{j} \X (1..fence[j]) : j \in Jobs})
AllClaims  == [job : Jobs, fence : 1..MaxFence, worker : Workers]

Tell(op, j, k, answer) == Contract!Tell(op, j, k, answer)

\* The compare-and-set of every holder's operation.
Holds(c) ==
  /\ status[c.job] = "running"
  /\ fence[c.job] = c.fence
  /\ worker[c.job] = c.worker

\* The claim that the row says is running, whether or not its worker still knows.
Current(j) == [job |-> j, fence |-> fence[j], worker |-> worker[j]]

\* The number that a claim gets, and whether an id may be enqueued. (Replaced in must-fail models.)
NextFence(j) == fence[j] + 1
IdUnused(j)  == status[j] = "absent"

\* G-20 counts the claims given since enqueue or requeue; an older one may still begin, late.
Counts(c) == status[c.job] # "deleted" /\ c.fence > since[c.job]

\* The claim that a worker names when the handler of claim c ends (W-5).
Named(c) == c

Init ==
  /\ Contract!Init
  /\ worker = [j \in Jobs |-> NoWorker]
  /\ claims = {} /\ begun = {}
  /\ starts = [j \in Jobs |-> 0] /\ since = [j \in Jobs |-> 0]

-----------------------------------------------------------------------------
\* A row that is not running has no worker (the frame rule).
Row(j, s, a, f) ==
  /\ status'   = [status EXCEPT ![j] = s]
  /\ attempts' = [attempts EXCEPT ![j] = a]
  /\ fence'    = [fence EXCEPT ![j] = f]
  /\ worker'   = [worker EXCEPT ![j] = NoWorker]

Forget(c)   == claims' = claims \ {c} /\ begun' = begun \ {c} /\ UNCHANGED history
KeepClaims  == UNCHANGED <<memory, history>>

Enqueue(j) == \* T-1
  /\ Tell("enqueue", j, 0, "ok")
  /\ IdUnused(j)
  /\ KeyFree(j)
  /\ Row(j, "pending", 0, 0)
  /\ KeepClaims

EnqueueDuplicate(j) == \* T-1
  /\ Tell("enqueue", j, 0, "DuplicateKey")
  /\ status[j] = "absent" /\ ~KeyFree(j)
  /\ UNCHANGED rows /\ KeepClaims

Dequeue(j, w) == \* T-2 W-1
  LET c == [job |-> j, fence |-> NextFence(j), worker |-> w]
  IN /\ Tell("dequeue", j, c.fence, "job")
     /\ status[j] \in {"pending", "failed"}
     /\ fence[j] < MaxFence /\ Given < MaxGiven
     /\ Cardinality({d \in claims : d.worker = w}) < Slots
     /\ status'   = [status EXCEPT ![j] = "running"]
     /\ attempts' = [attempts EXCEPT ![j] = @ + 1]
     /\ fence'    = [fence EXCEPT ![j] = c.fence]
     /\ worker'   = [worker EXCEPT ![j] = w]
     /\ claims'   = claims \cup {c}
     /\ UNCHANGED <<begun, history>>

DequeueNone == \* T-2
  /\ Tell("dequeue", NoJob, 0, "none")
  /\ UNCHANGED rows /\ KeepClaims

\* The handler may have started; the worker asks nobody, so a stale claim may begin too.
Begin(c) == \* G-20
  /\ c \in claims
  /\ c.job \in Begins /\ c \notin begun
  /\ begun' = begun \cup {c}
  /\ starts' = IF Counts(c) THEN [starts EXCEPT ![c.job] = @ + 1] ELSE starts
  /\ Contract!Silent /\ UNCHANGED <<worker, claims, since>>

Complete(c) == \* T-3 W-4
  LET n == Named(c)
  IN /\ c \in claims
     /\ Holds(n)
     /\ Tell("complete", n.job, n.fence, "ok")
     /\ Row(n.job, "completed", attempts[n.job], fence[n.job])
     /\ Forget(c)

FailRetry(c) == \* T-4 W-4 W-6
  /\ c \in claims
  /\ Holds(c)
  /\ attempts[c.job] < Max(c.job)
  /\ Tell("fail", c.job, c.fence, "failed")
  /\ Row(c.job, "failed", attempts[c.job], fence[c.job])
  /\ Forget(c)

FailLast(c) == \* T-5
  /\ c \in claims
  /\ Holds(c)
  /\ attempts[c.job] >= Max(c.job)
  /\ Tell("fail", c.job, c.fence, "dead")
  /\ Row(c.job, "dead", attempts[c.job], fence[c.job])
  /\ Forget(c)

Discard(c) == \* T-5 W-4
  /\ c \in claims
  /\ Holds(c)
  /\ Tell("discard", c.job, c.fence, "dead")
  /\ Row(c.job, "dead", attempts[c.job], fence[c.job])
  /\ Forget(c)

Release(c) == \* T-6 W-7
  /\ c \in claims
  /\ Holds(c)
  /\ c \notin begun
  /\ Tell("release", c.job, c.fence, "pending")
  /\ Row(c.job, "pending", attempts[c.job] - 1, fence[c.job])
  /\ Forget(c)

ReleaseBegun(c) == \* T-6 W-7
  /\ c \in claims
  /\ Holds(c)
  /\ c \in begun /\ Max(c.job) > 1
  /\ Tell("release begun", c.job, c.fence, "pending")
  /\ Row(c.job, "pending", attempts[c.job] - 1, fence[c.job])
  /\ Forget(c)

Interrupt(c) == \* T-6 W-7
  /\ c \in claims
  /\ Holds(c)
  /\ c \in begun /\ Max(c.job) = 1
  /\ Tell("release begun", c.job, c.fence, "dead")
  /\ Row(c.job, "dead", attempts[c.job], fence[c.job])
  /\ Forget(c)

Extend(c) == \* T-7 W-2
  /\ c \in claims
  /\ Holds(c)
  /\ Tell("extend", c.job, c.fence, "ok")
  /\ UNCHANGED rows /\ KeepClaims

\* Any operation of a stale holder: it learns, forgets, and writes nothing more.
LeaseLost(op, c) == \* G-3 W-2
  /\ c \in claims
  /\ ~Holds(c)
  /\ Tell(op, c.job, c.fence, "LeaseLost")
  /\ UNCHANGED rows
  /\ Forget(c)

SweepRetry(j) == \* T-8
  /\ Tell("sweep", j, fence[j], "failed")
  /\ status[j] = "running"
  /\ attempts[j] < Max(j)
  /\ Row(j, "failed", attempts[j], fence[j])
  /\ KeepClaims

SweepLast(j) == \* T-8
  /\ Tell("sweep", j, fence[j], "dead")
  /\ status[j] = "running"
  /\ attempts[j] >= Max(j)
  /\ Row(j, "dead", attempts[j], fence[j])
  /\ KeepClaims

Cancel(j) == \* T-9
  /\ Tell("cancel", j, 0, "true")
  /\ status[j] \in {"pending", "running", "failed"}
  /\ Row(j, "dead", attempts[j], fence[j])
  /\ KeepClaims

Requeue(j) == \* T-10
  /\ Tell("requeue", j, 0, "true")
  /\ status[j] \in {"dead", "failed"}
  /\ KeyFree(j)
  /\ Row(j, "pending", 0, fence[j])
  /\ IF j \in Begins
     THEN starts' = [starts EXCEPT ![j] = 0] /\ since' = [since EXCEPT ![j] = fence[j]]
     ELSE UNCHANGED history
  /\ UNCHANGED memory

RequeueDuplicate(j) == \* T-10
  /\ Tell("requeue", j, 0, "DuplicateKey")
  /\ status[j] \in {"dead", "failed"} /\ ~KeyFree(j)
  /\ UNCHANGED rows /\ KeepClaims

Cleanup(j) == \* T-11
  /\ Tell("cleanup", j, 0, "deleted")
  /\ status[j] \in {"completed", "dead"}
  /\ Row(j, "deleted", 0, 0)
  /\ starts' = [starts EXCEPT ![j] = 0] /\ since' = [since EXCEPT ![j] = 0]
  /\ UNCHANGED memory

\* What a process forgets when it dies, or when it is stopped a second time.
Crash(w) == \* G-18
  /\ \E c \in claims : c.worker = w
  /\ claims' = {c \in claims : c.worker # w}
  /\ begun'  = {c \in begun : c.worker # w}
  /\ Contract!Silent /\ UNCHANGED <<worker, history>>

\* A step of a worker, or of what the modules below add, that asks the database nothing.
Silent ==
  /\ Contract!Silent
  /\ UNCHANGED <<worker, memory, history>>

Settle(c) ==
  \/ Complete(c) \/ FailRetry(c) \/ FailLast(c) \/ Discard(c)
  \/ Release(c) \/ ReleaseBegun(c) \/ Interrupt(c)

Next ==
  \/ DequeueNone
  \/ \E j \in Jobs : \/ Enqueue(j) \/ EnqueueDuplicate(j)
                     \/ SweepRetry(j) \/ SweepLast(j) \/ Cancel(j)
                     \/ Requeue(j) \/ RequeueDuplicate(j) \/ Cleanup(j)
  \/ \E j \in Jobs, w \in Workers : Dequeue(j, w)
  \/ \E c \in AllClaims : \/ Begin(c) \/ Settle(c) \/ Extend(c)
                          \/ \E op \in LostOps : LeaseLost(op, c)
  \/ \E w \in Workers : Crash(w)

Spec == Init /\ [][Next]_vars

\* Next (or Silent) for a step whose reply is known; see JobQueue!NextTold.
NextTold ==
  \/ DequeueNone \/ Silent
  \/ \E w \in Workers : Crash(w)
  \/ \E c \in claims : Begin(c)
  \/ /\ reply'.answer # "none"
     /\ LET j == reply'.job
        IN \/ Enqueue(j) \/ EnqueueDuplicate(j)
           \/ SweepRetry(j) \/ SweepLast(j) \/ Cancel(j)
           \/ Requeue(j) \/ RequeueDuplicate(j) \/ Cleanup(j)
           \/ \E w \in Workers : Dequeue(j, w)
  \/ /\ reply'.op \in Contract!HolderOps
     /\ \E c \in claims : /\ c.job = reply'.job /\ c.fence = reply'.fence
                          /\ \/ Settle(c) \/ Extend(c)
                             \/ \E op \in LostOps : LeaseLost(op, c)

SpecTold == Init /\ [][NextTold]_vars

RefinesContract == Contract!SpecTold

-----------------------------------------------------------------------------
(* Safety, over what L1 cannot see. *)

G1_WellFormed == \* G-1
  /\ Contract!G1_WellFormed
  /\ \A j \in Jobs : worker[j] # NoWorker <=> status[j] = "running"
  /\ claims \subseteq AllClaims /\ begun \subseteq claims

G2_FenceGrowsByOne == Contract!G2_FenceGrowsByOne \* G-2

G2_NoTwoClaimsTheSame == \* G-2
  \* every held claim, stale or not, was given once: by id and fence alone
  /\ \A c, d \in claims : c.job = d.job /\ c.fence = d.fence => c = d
  /\ \A c \in claims : status[c.job] \in {"absent", "deleted"} \/ c.fence <= fence[c.job]

G2_ClaimIsNew == \* G-2
  [][reply'.op = "dequeue" /\ reply'.answer = "job"
       => \A c \in claims : ~(c.job = reply'.job /\ c.fence = reply'.fence)]_vars

G3_StaleHolderChangesNothing == Contract!G3_StaleHolderChangesNothing \* G-3

G3_OnlyTheHolderSettles == \* G-3
  \* the claim that a worker gives up with an operation that changed the row was the current one
  [][\A c \in claims \ claims' :
       reply'.op \in Contract!HolderOps /\ reply'.answer # "LeaseLost"
         => status[c.job] = "running" /\ c = Current(c.job)]_vars

G4_OneOutcome            == Contract!G4_OneOutcome            \* G-4
G5_AttemptsExact         == Contract!G5_AttemptsExact         \* G-5
G6_AttemptsBounded       == Contract!G6_AttemptsBounded       \* G-6
G7_DeadAtLastAttempt     == Contract!G7_DeadAtLastAttempt     \* G-7
G8_DeadForAReason        == Contract!G8_DeadForAReason        \* G-8
G9_TerminalIsLeftOnPurpose == Contract!G9_TerminalIsLeftOnPurpose \* G-9
G14_OnlyTerminalIsDeleted  == Contract!G14_OnlyTerminalIsDeleted  \* G-14
G15_IdNeverComesBack     == Contract!G15_IdNeverComesBack     \* G-15
G16_NoneLostOrInvented   == Contract!G16_NoneLostOrInvented   \* G-16
G19_RequeueStartsAfresh  == Contract!G19_RequeueStartsAfresh  \* G-19
G21_UniqueKey            == Contract!G21_UniqueKey            \* G-21
G22_NothingElseChanges   == Contract!G22_NothingElseChanges   \* G-22

G18_CrashChangesNoRow == \* G-18
  \* a step that answers nobody changes no row
  [][reply'.op = "none" => UNCHANGED rows]_vars

G20_BegunAtMostOnce == \* G-20
  \A j \in Once : starts[j] <= 1

W1_NoMoreThanSlots == \* W-1
  \A w \in Workers : Cardinality({c \in claims : c.worker = w}) <= Slots

W5_KeyedByClaim == \* W-5
  \* a job that a worker settled was settled by the handler of its current claim
  [][\A j \in Jobs : status[j] = "running" /\ status'[j] = "completed"
       => Current(j) \in claims /\ Current(j) \notin claims']_vars

-----------------------------------------------------------------------------
(* Liveness. Assumed: workers live (what can be claimed, settled, swept is     *)
(* claimed, settled, swept in the end) and releases and requeues are finitely  *)
(* many: Ahead(j), the claims that j can still get without another one, plus   *)
(* those that it had, stays within MaxFence.                                   *)

Ahead(j) == fence[j] + Max(j) - attempts[j]

LiveNext == Next /\ \A j \in Jobs : Ahead(j)' <= MaxFence

Fairness ==
  /\ \A j \in Jobs : WF_vars(\E w \in Workers : Dequeue(j, w) /\ LiveNext)
  /\ \A j \in Jobs : WF_vars(Current(j) \notin claims /\ (SweepRetry(j) \/ SweepLast(j)))
  /\ \A c \in AllClaims : WF_vars(c \in claims /\ (Complete(c) \/ FailRetry(c) \/ FailLast(c) \/ Discard(c)))
  /\ \A c \in AllClaims : WF_vars(c \in claims /\ \E op \in LostOps : LeaseLost(op, c))

LiveSpec == Init /\ [][LiveNext]_vars /\ Fairness

Orphan(j, k) == status[j] = "running" /\ fence[j] = k /\ Current(j) \notin claims

G24_OrphanRecovered == \* G-24
  \A j \in Jobs, k \in 1..MaxFence :
    Orphan(j, k) ~> ~(status[j] = "running" /\ fence[j] = k)

G25_EveryJobEnds == \* G-25
  \A j \in Jobs : (status[j] \in Contract!Active) ~> (status[j] \in {"completed", "dead"})

G26_EveryDueJobClaimed == \* G-26
  \A j \in Jobs : (status[j] \in Contract!Claimable) ~> (status[j] \notin Contract!Claimable)

G27_StaleHolderEnds == \* G-27
  \A c \in AllClaims : (c \in claims /\ ~Holds(c)) ~> (c \notin claims)
=============================================================================

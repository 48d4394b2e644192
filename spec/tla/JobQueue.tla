------------------------------ MODULE JobQueue ------------------------------
(***************************************************************************)
(* L1, the observable contract of spec/lifecycle.md: each job's status,    *)
(* attempts and fence, and what a caller is told. Nothing here knows of     *)
(* workers, time, statements or databases; the other modules refine this   *)
(* one. A clause id (T-n, G-n) stands on the definition that says it.       *)
(*                                                                         *)
(* A caller is anyone who names a claim (job, fence): only the fence        *)
(* decides whether it is the holder.                                       *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets

CONSTANTS
  Jobs,        \* ids; an id is used once
  NoJob,       \* what a reply names that is about no job
  Once,        \* the jobs whose max_attempts is 1
  Limit,       \* max_attempts of all others
  Keyed,       \* the jobs that share one unique_key; the others have none
  MaxFence,    \* bound of the model: no more claims of one job than this
  Told         \* FALSE hides `reply` (liveness, graphs): fewer states

VARIABLES
  status,      \* job -> one of the five, or "absent" (not yet enqueued), "deleted"
  attempts,    \* job -> claims since enqueue or requeue, less those released
  fence,       \* job -> claims in its whole life
  reply        \* the last answer; no action reads it, so it can stay out of the VIEW

rows == <<status, attempts, fence>>
vars == <<status, attempts, fence, reply>>

Five      == {"pending", "running", "completed", "failed", "dead"}
Claimable == {"pending", "failed"}
Terminal  == {"completed", "dead"}
Active    == {"pending", "running", "failed"}     \* hold their unique key
Max(j)    == IF j \in Once THEN 1 ELSE Limit
Fences    == 1..MaxFence
HolderOps == {"complete", "fail", "discard", "release", "release begun", "extend"}

Tell(op, j, k, answer) ==
  reply' = IF Told THEN [op |-> op, job |-> j, fence |-> k, answer |-> answer] ELSE reply

Row(j, s, a, f) ==
  /\ status'   = [status EXCEPT ![j] = s]
  /\ attempts' = [attempts EXCEPT ![j] = a]
  /\ fence'    = [fence EXCEPT ![j] = f]

Same  == UNCHANGED rows
Quiet == [op |-> "none", job |-> NoJob, fence |-> 0, answer |-> "none"]

IsHolder(j, k) == status[j] = "running" /\ fence[j] = k
KeyFree(j)     == j \in Keyed => \A i \in Keyed \ {j} : status[i] \notin Active

Init ==
  /\ status   = [j \in Jobs |-> "absent"]
  /\ attempts = [j \in Jobs |-> 0]
  /\ fence    = [j \in Jobs |-> 0]
  /\ reply    = Quiet

-----------------------------------------------------------------------------
(* Transitions. Each first says what the caller is told. *)

Enqueue(j) == \* T-1
  /\ Tell("enqueue", j, 0, "ok")
  /\ status[j] = "absent" /\ KeyFree(j)
  /\ Row(j, "pending", 0, 0)

EnqueueDuplicate(j) == \* T-1
  /\ Tell("enqueue", j, 0, "DuplicateKey")
  /\ status[j] = "absent" /\ ~KeyFree(j)
  /\ Same

Dequeue(j) == \* T-2
  /\ Tell("dequeue", j, fence[j] + 1, "job")
  /\ status[j] \in Claimable
  /\ fence[j] < MaxFence
  /\ Row(j, "running", attempts[j] + 1, fence[j] + 1)

DequeueNone == \* T-2
  /\ Tell("dequeue", NoJob, 0, "none")
  /\ Same

Complete(j, k) == \* T-3
  /\ Tell("complete", j, k, "ok")
  /\ IsHolder(j, k)
  /\ Row(j, "completed", attempts[j], fence[j])

FailRetry(j, k) == \* T-4
  /\ Tell("fail", j, k, "failed")
  /\ IsHolder(j, k) /\ attempts[j] < Max(j)
  /\ Row(j, "failed", attempts[j], fence[j])

FailLast(j, k) == \* T-5
  /\ Tell("fail", j, k, "dead")
  /\ IsHolder(j, k) /\ attempts[j] >= Max(j)
  /\ Row(j, "dead", attempts[j], fence[j])

Discard(j, k) == \* T-5
  /\ Tell("discard", j, k, "dead")
  /\ IsHolder(j, k)
  /\ Row(j, "dead", attempts[j], fence[j])

Release(j, k) == \* T-6
  /\ Tell("release", j, k, "pending")
  /\ IsHolder(j, k)
  /\ Row(j, "pending", attempts[j] - 1, fence[j])

ReleaseBegun(j, k) == \* T-6
  /\ Tell("release begun", j, k, "pending")
  /\ IsHolder(j, k) /\ Max(j) > 1
  /\ Row(j, "pending", attempts[j] - 1, fence[j])

Interrupt(j, k) == \* T-6
  /\ Tell("release begun", j, k, "dead")
  /\ IsHolder(j, k) /\ Max(j) = 1
  /\ Row(j, "dead", attempts[j], fence[j])

Extend(j, k) == \* T-7
  /\ Tell("extend", j, k, "ok")
  /\ IsHolder(j, k)
  /\ Same

LeaseLost(op, j, k) == \* G-3
  /\ Tell(op, j, k, "LeaseLost")
  /\ ~IsHolder(j, k)
  /\ Same

SweepRetry(j) == \* T-8
  /\ Tell("sweep", j, fence[j], "failed")
  /\ status[j] = "running" /\ attempts[j] < Max(j)
  /\ Row(j, "failed", attempts[j], fence[j])

SweepLast(j) == \* T-8
  /\ Tell("sweep", j, fence[j], "dead")
  /\ status[j] = "running" /\ attempts[j] >= Max(j)
  /\ Row(j, "dead", attempts[j], fence[j])

Cancel(j) == \* T-9
  /\ Tell("cancel", j, 0, "true")
  /\ status[j] \in Active
  /\ Row(j, "dead", attempts[j], fence[j])

Requeue(j) == \* T-10
  /\ Tell("requeue", j, 0, "true")
  /\ status[j] \in {"dead", "failed"} /\ KeyFree(j)
  /\ Row(j, "pending", 0, fence[j])

RequeueDuplicate(j) == \* T-10
  /\ Tell("requeue", j, 0, "DuplicateKey")
  /\ status[j] \in {"dead", "failed"} /\ ~KeyFree(j)
  /\ Same

Cleanup(j) == \* T-11
  /\ Tell("cleanup", j, 0, "deleted")
  /\ status[j] \in Terminal
  /\ Row(j, "deleted", 0, 0)

Refuse(op, j) == \* G-22
  /\ Tell(op, j, 0, "false")
  /\ \/ op = "sweep"   /\ TRUE                      \* "not as looked at" is always possible
     \/ op = "cancel"  /\ status[j] \notin Active
     \/ op = "requeue" /\ status[j] \notin {"dead", "failed"}
     \/ op = "cleanup" /\ status[j] # "absent"      \* "not old enough" is always possible
  /\ Same

\* A crash, or a step of a worker that asks the database nothing.
Silent == \* G-18
  /\ reply' = IF Told THEN Quiet ELSE reply
  /\ Same

ByCaller(j) ==
  \/ Enqueue(j) \/ EnqueueDuplicate(j) \/ Dequeue(j)
  \/ SweepRetry(j) \/ SweepLast(j) \/ Cancel(j)
  \/ Requeue(j) \/ RequeueDuplicate(j) \/ Cleanup(j)
  \/ \E op \in {"sweep", "cancel", "requeue", "cleanup"} : Refuse(op, j)

ByHolder(j, k) ==
  \/ Complete(j, k) \/ FailRetry(j, k) \/ FailLast(j, k) \/ Discard(j, k)
  \/ Release(j, k) \/ ReleaseBegun(j, k) \/ Interrupt(j, k) \/ Extend(j, k)
  \/ \E op \in HolderOps : LeaseLost(op, j, k)

Next ==
  \/ DequeueNone \/ Silent
  \/ \E j \in Jobs : ByCaller(j)
  \/ \E j \in Jobs, k \in Fences : ByHolder(j, k)

Spec == Init /\ [][Next]_vars

\* Next for a step whose reply is known: it looks only at the job and fence that the reply
\* names. NextTold => Next. A refinement is checked against it, an order of magnitude faster.
NextTold ==
  \/ DequeueNone \/ Silent
  \/ reply'.answer # "none" /\ ByCaller(reply'.job)
  \/ reply'.op \in HolderOps /\ reply'.fence \in Fences /\ ByHolder(reply'.job, reply'.fence)

SpecTold == Init /\ [][NextTold]_vars

Rows == rows   \* the VIEW: `reply` is written by every action and read by none

-----------------------------------------------------------------------------
(* Guarantees. None of them mentions an action above: each is written from   *)
(* the rows before, the rows after, and the reply. By G-22 only the job that *)
(* the reply names changes, so the others need to look at no other.           *)

J                == reply'.job
AJob             == reply'.answer # "none"     \* the reply is about one job
Is(op, answer)   == reply'.op = op /\ reply'.answer = answer
Became(s)        == status[J] # s /\ status'[J] = s
Changed(j)       == <<status'[j], attempts'[j], fence'[j]>> # <<status[j], attempts[j], fence[j]>>
Claimed          == Is("dequeue", "job")
Released         == reply'.op \in {"release", "release begun"} /\ reply'.answer = "pending"
Outcome          == \* one of the ends that a claim can have
  \/ reply'.op \in {"complete", "fail", "discard", "release", "release begun"} /\ reply'.answer # "LeaseLost"
  \/ reply'.op = "sweep" /\ reply'.answer # "false"
  \/ Is("cancel", "true") /\ status[J] = "running"

G1_WellFormed == \* G-1
  \A j \in Jobs :
    /\ status[j] \in Five \cup {"absent", "deleted"}
    /\ attempts[j] \in 0..MaxFence /\ fence[j] \in 0..MaxFence
    /\ attempts[j] <= fence[j]
    /\ status[j] \in {"absent", "deleted"} => fence[j] = 0
    /\ status[j] = "running" => attempts[j] >= 1

G2_FenceGrowsByOne == \* G-2
  [][AJob => (
       \/ Claimed /\ fence'[J] = fence[J] + 1 /\ reply'.fence = fence'[J]
       \/ ~Claimed /\ (fence'[J] = fence[J] \/ status'[J] = "deleted"))]_vars

G3_StaleHolderChangesNothing == \* G-3
  [][reply'.op \in HolderOps =>
       IF status[J] = "running" /\ fence[J] = reply'.fence
       THEN reply'.answer # "LeaseLost"
       ELSE reply'.answer = "LeaseLost" /\ UNCHANGED rows]_vars

G4_OneOutcome == \* G-4
  \* an outcome ends a running claim, nothing else does, and by G-2 that claim never runs again
  [][AJob => (Outcome <=> status[J] = "running" /\ status'[J] # "running")]_vars

G5_AttemptsExact == \* G-5
  [][AJob => attempts'[J] =
       CASE Claimed                                             -> attempts[J] + 1
         [] Released                                            -> attempts[J] - 1
         [] reply'.op \in {"enqueue", "requeue", "cleanup"}
            /\ reply'.answer \notin {"DuplicateKey", "false"}   -> 0
         [] OTHER                                               -> attempts[J]]_vars

G6_AttemptsBounded == \* G-6
  \A j \in Jobs : attempts[j] <= Max(j)

G7_DeadAtLastAttempt == \* G-7
  [][reply'.op \in {"fail", "sweep"} /\ status'[J] # status[J]
       => (status'[J] = "dead" <=> attempts[J] >= Max(J))]_vars

G8_DeadForAReason == \* G-8
  [][AJob /\ Became("dead") =>
       \/ Is("discard", "dead") \/ Is("cancel", "true")
       \/ Is("release begun", "dead") /\ Max(J) = 1
       \/ reply'.op \in {"fail", "sweep"} /\ attempts[J] = Max(J)]_vars

G9_TerminalIsLeftOnPurpose == \* G-9
  [][AJob /\ status[J] \in Terminal /\ status'[J] # status[J] =>
       \/ Is("cleanup", "deleted")
       \/ Is("requeue", "true") /\ status[J] = "dead"]_vars

G14_OnlyTerminalIsDeleted == \* G-14
  [][AJob /\ Became("deleted") => status[J] \in Terminal /\ reply'.op = "cleanup"]_vars

G15_IdNeverComesBack == \* G-15
  [][AJob /\ status[J] = "deleted" => status'[J] = "deleted"]_vars

G16_NoneLostOrInvented == \* G-16
  [][AJob =>
       /\ status[J] = "absent" => (status'[J] # "absent" <=> Is("enqueue", "ok"))
       /\ Is("enqueue", "ok") => status'[J] = "pending"
       /\ status[J] # "absent" => status'[J] \in Five \cup {"deleted"}]_vars

G19_RequeueStartsAfresh == \* G-19
  [][Is("requeue", "true")
       => status'[J] = "pending" /\ attempts'[J] = 0 /\ fence'[J] = fence[J]]_vars

G21_UniqueKey == \* G-21
  \A i, j \in Keyed : i # j => status[i] \notin Active \/ status[j] \notin Active

G22_NothingElseChanges == \* G-22
  [][\A j \in Jobs : Changed(j) =>
       reply'.answer \notin {"LeaseLost", "false", "none", "DuplicateKey"} /\ reply'.job = j]_vars
=============================================================================

--------------------------- MODULE JobQueueGraph ----------------------------
(***************************************************************************)
(* L2 as a graph to be compared with other executors, state by state and      *)
(* edge by edge (spec/graph.py): rows, held claims, and which leases are       *)
(* expired. A lease expires at any time; only an expired one is swept. Whether  *)
(* a job is begun is what its holder says when it releases: an argument, not a  *)
(* part of the state. No replies, no history, no liveness.                     *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets

CONSTANTS Jobs, NoJob, Once, Limit, Keyed, MaxFence, MaxGiven, Workers, Slots

VARIABLES status, attempts, fence, worker, claims,
  expired     \* the running jobs whose lease_expires_at is reached

vars == <<status, attempts, fence, worker, claims, expired>>

\* (Written out in full: TLC 2.15 takes no named constant for a variable that it finds UNCHANGED.)
Contract == INSTANCE JobQueue WITH Told <- FALSE,
  reply <- [op |-> "none", job |-> NoJob, fence |-> 0, answer |-> "none"]
L == INSTANCE JobQueueLease WITH Told <- FALSE, Begins <- {}, LostOps <- {"extend"}, begun <- {},
  reply <- [op |-> "none", job |-> NoJob, fence |-> 0, answer |-> "none"],
  starts <- [j \in Jobs |-> 0], since <- [j \in Jobs |-> 0]

Init == L!Init /\ expired = {}

Ends(j)    == expired' = expired \ {j}
Untouched  == UNCHANGED expired

Enqueue(j)      == L!Enqueue(j) /\ Untouched            \* T-1
Dequeue(j, w)   == L!Dequeue(j, w) /\ Untouched         \* T-2
Complete(c)     == L!Complete(c) /\ Ends(c.job)         \* T-3
FailRetry(c)    == L!FailRetry(c) /\ Ends(c.job)        \* T-4
FailLast(c)     == L!FailLast(c) /\ Ends(c.job)         \* T-5
Discard(c)      == L!Discard(c) /\ Ends(c.job)          \* T-5
Release(c)      == L!Release(c) /\ Ends(c.job)          \* T-6

ReleaseBegun(c) == \* T-6
  /\ c \in claims /\ L!Holds(c) /\ L!Max(c.job) > 1
  /\ L!Row(c.job, "pending", attempts[c.job] - 1, fence[c.job])
  /\ L!Forget(c) /\ Ends(c.job)

Interrupt(c) == \* T-6
  /\ c \in claims /\ L!Holds(c) /\ L!Max(c.job) = 1
  /\ L!Row(c.job, "dead", attempts[c.job], fence[c.job])
  /\ L!Forget(c) /\ Ends(c.job)

Extend(c)       == L!Extend(c) /\ Ends(c.job)           \* T-7
LeaseLost(c)    == L!LeaseLost("extend", c) /\ Untouched  \* G-3

Expire(j) == \* T-8
  /\ status[j] = "running" /\ j \notin expired
  /\ expired' = expired \cup {j}
  /\ UNCHANGED <<status, attempts, fence, worker, claims>>

SweepRetry(j)   == j \in expired /\ L!SweepRetry(j) /\ Ends(j)  \* T-8
SweepLast(j)    == j \in expired /\ L!SweepLast(j) /\ Ends(j)   \* T-8
Cancel(j)       == L!Cancel(j) /\ Ends(j)               \* T-9
Requeue(j)      == L!Requeue(j) /\ Untouched            \* T-10
Cleanup(j)      == L!Cleanup(j) /\ Untouched            \* T-11
Crash(w)        == L!Crash(w) /\ Untouched              \* G-18

Next ==
  \/ \E j \in Jobs : \/ Enqueue(j) \/ Expire(j) \/ SweepRetry(j) \/ SweepLast(j)
                     \/ Cancel(j) \/ Requeue(j) \/ Cleanup(j)
  \/ \E j \in Jobs, w \in Workers : Dequeue(j, w)
  \/ \E c \in L!AllClaims :
       \/ Complete(c) \/ FailRetry(c) \/ FailLast(c) \/ Discard(c) \/ Release(c)
       \/ ReleaseBegun(c) \/ Interrupt(c) \/ Extend(c) \/ LeaseLost(c)
  \/ \E w \in Workers : Crash(w)

Spec == Init /\ [][Next]_vars

RefinesContract == Contract!Spec

G1_WellFormed == \* G-1
  /\ L!G1_WellFormed
  /\ \A j \in expired : status[j] = "running"
=============================================================================

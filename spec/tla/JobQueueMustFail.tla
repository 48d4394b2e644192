-------------------------- MODULE JobQueueMustFail --------------------------
(***************************************************************************)
(* What the queue would be without one of its rules, and what it does not   *)
(* promise. A .cfg puts a definition of this module in the place of one of   *)
(* JobQueueLease (`Holds <- HoldsUnfenced`); the model must then violate the  *)
(* property that the manifest names. Two models must pass: the overlap of    *)
(* N-3 without its cause, and what the worker's name in the compare-and-set   *)
(* is for.                                                                  *)
(***************************************************************************)
EXTENDS JobQueueLease

\* The compare-and-set without the fence.
HoldsUnfenced(c) == status[c.job] = "running"

\* attempts as the fence: requeue sets it back.
NextAttempt(j) == attempts[j] + 1

\* A deleted id is enqueued again, as an integer key without AUTOINCREMENT would be.
IdNotPresent(j) == status[j] \in {"absent", "deleted"}

\* A worker that keys its claims by id: the old handler settles the new claim.
NewestOfItsJob(c) ==
  CHOOSE d \in claims :
    /\ d.job = c.job /\ d.worker = c.worker
    /\ \A e \in claims : e.job = d.job /\ e.worker = d.worker => e.fence <= d.fence

\* G-20 read without 'given since': a claim from before the requeue may begin late.
CountsAnyClaim(c) == TRUE

N1_ExactlyOnce == \* N-1
  \A j \in Jobs : starts[j] <= 1

-----------------------------------------------------------------------------
(* A handler overruns its timeout (W-6). A thread cannot be killed: the        *)
(* attempt ends at once and the handler runs on. No sweep and no cancel here:   *)
(* the timeout alone makes two handlers of one job overlap.                    *)

Overrun(c, running) == \* W-6
  /\ c \in claims /\ c \in begun
  /\ Holds(c)
  /\ attempts[c.job] < Max(c.job)
  /\ Tell("fail", c.job, c.fence, "failed")
  /\ Row(c.job, "failed", attempts[c.job], fence[c.job])
  /\ claims' = claims \ {c}
  /\ begun'  = running
  /\ UNCHANGED history

TimeoutInThread(c)  == Overrun(c, begun)
TimeoutInProcess(c) == Overrun(c, begun \ {c})

HandlerEndsLate(c) == \* W-6
  /\ c \in begun /\ c \notin claims
  /\ begun' = begun \ {c}
  /\ Contract!Silent /\ UNCHANGED <<worker, claims, history>>

Undisturbed ==
  \/ \E j \in Jobs : Enqueue(j)
  \/ \E j \in Jobs, w \in Workers : Dequeue(j, w)
  \/ \E c \in AllClaims : Begin(c) \/ (c \in begun /\ Complete(c)) \/ HandlerEndsLate(c)

ThreadSpec  == Init /\ [][Undisturbed \/ \E c \in AllClaims : TimeoutInThread(c)]_vars
ProcessSpec == Init /\ [][Undisturbed \/ \E c \in AllClaims : TimeoutInProcess(c)]_vars

N3_NoOverlap == \* N-3
  \A c, d \in begun : c.job = d.job => c = d

-----------------------------------------------------------------------------
(* Endless arrivals of higher priority. With IdNotPresent for IdUnused a deleted *)
(* id stands for the next new job. Everything else is fair.                      *)

Low    == Once
Urgent == Jobs \ Once

\* The order of section 6, as far as this model needs it: what is urgent goes first.
DequeueInOrder(j, w) == \* T-2
  /\ j \in Low => \A i \in Urgent : status[i] # "pending"
  /\ Dequeue(j, w)

Arrivals ==
  \/ \E j \in Jobs : Enqueue(j) \/ Cleanup(j)
  \/ \E j \in Jobs, w \in Workers : DequeueInOrder(j, w)
  \/ \E c \in AllClaims : Complete(c)

ArrivalSpec ==
  /\ Init /\ [][Arrivals]_vars
  /\ \A j \in Jobs, w \in Workers : WF_vars(DequeueInOrder(j, w))
  /\ \A c \in AllClaims : WF_vars(Complete(c))

N2_NoStarvation == \* N-2
  \A j \in Low : (status[j] = "pending") ~> (status[j] # "pending")

-----------------------------------------------------------------------------
(* A failover loses the commit of a dequeue: the row is as before, the holder   *)
(* does not know, and another worker gets a claim with the same fence. Then     *)
(* only the worker's name in the compare-and-set tells the two apart.           *)

LoseCommit(j) ==
  /\ status[j] = "running"
  /\ Tell("none", NoJob, 0, "none")
  /\ status'   = [status EXCEPT ![j] = "pending"]
  /\ attempts' = [attempts EXCEPT ![j] = @ - 1]
  /\ fence'    = [fence EXCEPT ![j] = @ - 1]
  /\ worker'   = [worker EXCEPT ![j] = NoWorker]
  /\ KeepClaims

FailoverSpec == Init /\ [][Next \/ \E j \in Jobs : LoseCommit(j)]_vars
=============================================================================

------------------------------- MODULE Trace -------------------------------
(***************************************************************************)
(* Replays logs of a real run (python -m stress) as behaviours of L2. Each  *)
(* log is cut from what triggers wrote about up to 50 jobs, in commit       *)
(* order; TraceData, written for each run, holds them. An event says what   *)
(* a row became, and the claim that it is about: the fence in the handler's *)
(* outcome, not the row's. The event must be a step of L2 that makes the    *)
(* row so: if none is, EveryEventIsAStep is violated at that event.          *)
(*                                                                         *)
(* The logs are independent: each is one initial state.                    *)
(***************************************************************************)
EXTENDS JobQueueLease, Sequences, TraceData

VARIABLES
  log,   \* which log
  l      \* the next event of it

Over  == l > Len(Logs[log].events)

\* Events are tuples, for TLC spends most of its time reading them.
Event ==
  LET e == Logs[log].events[l]
  IN [op |-> e[1], job |-> e[2], was |-> e[3], status |-> e[4], attempts |-> e[5], fence |-> e[6],
      by |-> e[7], worker |-> e[8]]

\* These replace definitions of L2: each real job has its own max_attempts and unique key.
TraceMax(j)     == Logs[log].max[j]
TraceKeyFree(j) ==
  \A i \in Jobs \ {j} :
    Logs[log].key[i] = Logs[log].key[j] /\ Logs[log].key[j] # "" => status[i] \notin Contract!Active

\* One state of L2 for one change of a row. A sweep may hit any running job (L2 has no clock).
Step(e) ==
  LET c == [job |-> e.job, fence |-> e.by, worker |-> e.worker]
  IN CASE e.op = "enqueue"   -> Enqueue(e.job)
       [] e.op = "dequeue"   -> Dequeue(e.job, e.worker)
       [] e.op = "begin"     -> Begin(c)
       [] e.op = "complete"  -> Complete(c)
       [] e.op = "fail"      -> FailRetry(c) \/ FailLast(c)
       [] e.op = "discard"   -> Discard(c)
       [] e.op = "release"   -> Release(c)
       [] e.op = "interrupt" -> Interrupt(c)
       [] e.op = "sweep"     -> SweepRetry(e.job) \/ SweepLast(e.job)
       [] e.op = "cancel"    -> Cancel(e.job)
       [] e.op = "requeue"   -> Requeue(e.job)
       [] e.op = "cleanup"   -> Cleanup(e.job)
       [] OTHER              -> FALSE

TraceStep ==
  /\ ~Over
  /\ status[Event.job] = Event.was
  /\ Step(Event)
  /\ status'[Event.job] = Event.status
  /\ attempts'[Event.job] = Event.attempts
  /\ fence'[Event.job] = Event.fence
  /\ l' = l + 1
  /\ UNCHANGED log

TraceInit == Init /\ log \in 1..Len(Logs) /\ l = 1
TraceSpec == TraceInit /\ [][TraceStep]_<<vars, log, l>>

EveryEventIsAStep == Over \/ ENABLED TraceStep

BegunAtMostOnce == \* as G-20, with each job's own max_attempts
  \A j \in Jobs : TraceMax(j) = 1 => starts[j] <= 1
=============================================================================

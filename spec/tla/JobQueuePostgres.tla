-------------------------- MODULE JobQueuePostgres --------------------------
(***************************************************************************)
(* L3 on PostgreSQL, READ COMMITTED, statement by statement. Many            *)
(* transactions are open at once. A statement first takes its snapshot: the   *)
(* committed rows, and what its own transaction wrote. It writes a row only    *)
(* when no other transaction has it locked - dequeue skips a locked row, all   *)
(* others wait - and then tests its WHERE again on the row as it is now.       *)
(* Select and write are therefore separate steps here. An exchange is two      *)
(* statements, each with its own snapshot. A unique index lets a writer wait   *)
(* for an open transaction that is taking or freeing the key.                  *)
(*                                                                         *)
(* Refines JobQueueLease: what a transaction wrote becomes visible there after *)
(* its COMMIT, row by row, while it still has the rows locked.                 *)
(***************************************************************************)
EXTENDS Integers, FiniteSets, Sequences

CONSTANTS
  Jobs, NoJob, Once, Limit, Keyed, MaxFence, MaxGiven, Told, Workers, Slots, Begins, LostOps,
  Statements,    \* bound of the model: no more writes in one transaction
  Readers        \* bound of the model: the workers that look (to sweep, to clean up)

VARIABLES status, attempts, fence, reply, worker, starts, since,
  held,     \* what workers hold: [job, fence, worker, attempts], as dequeue gave it
  phase,    \* worker -> of its transaction: "none", "open" or "committed"
  asked,    \* worker -> the statement that has its snapshot and has not written: [op, found, fence]
  log,      \* worker -> what its transaction wrote: [op, job, fence, worker, answer, row]
  seen      \* worker -> looks: [job, fence]

claims == {[job |-> h.job, fence |-> h.fence, worker |-> h.worker] : h \in held}

L == INSTANCE JobQueueLease WITH begun <- {}

rows    == <<status, attempts, fence, worker>>
history == <<starts, since>>
vars    == <<rows, reply, history, held, phase, asked, log, seen>>
Rows    == <<rows, history, held, phase, asked, log, seen>>

Active    == {"pending", "running", "failed"}
Terminal  == {"completed", "dead"}
Claimable == {"pending", "failed"}
Max(j)    == IF j \in Once THEN 1 ELSE Limit
Idle      == [op |-> "none", found |-> {}, fence |-> 0]
Committed(j) == [status |-> status[j], attempts |-> attempts[j], fence |-> fence[j], worker |-> worker[j]]

Wrote(w, j)  == {i \in 1..Len(log[w]) : log[w][i].job = j}
\* A row as w's transaction sees it: what it wrote last, else what is committed.
Row(w, j) == IF Wrote(w, j) = {} THEN Committed(j)
             ELSE log[w][CHOOSE i \in Wrote(w, j) : \A k \in Wrote(w, j) : k <= i].row

LockedByOther(w, j) == \E v \in Workers \ {w} : Wrote(v, j) # {}

\* Another open transaction has taken or freed the key, if only for a moment: the index makes w wait for its end.
KeyInDoubt(w, j) ==
  j \in Keyed /\ \E v \in Workers \ {w} : \E n \in 1..Len(log[v]) :
    LET e == log[v][n]
    IN e.job \in Keyed \ {j} /\ (e.row.status \in Active) # (status[e.job] \in Active)
KeyFree(w, j) == j \in Keyed => \A i \in Keyed \ {j} : Row(w, i).status \notin Active

Init ==
  /\ L!Contract!Init
  /\ worker = [j \in Jobs |-> "none"]
  /\ starts = [j \in Jobs |-> 0] /\ since = [j \in Jobs |-> 0]
  /\ held = {}
  /\ phase = [w \in Workers |-> "none"] /\ asked = [w \in Workers |-> Idle]
  /\ log = [w \in Workers |-> <<>>] /\ seen = [w \in Workers |-> {}]

Quiet == L!Contract!Silent /\ UNCHANGED <<worker, history>>

-----------------------------------------------------------------------------
(* The transaction. *)

Begin(w) == \* G-18
  /\ phase[w] = "none"
  /\ phase' = [phase EXCEPT ![w] = "open"]
  /\ Quiet /\ UNCHANGED <<held, asked, log, seen>>

Commit(w) == \* G-18
  /\ phase[w] = "open" /\ asked[w] = Idle /\ log[w] # <<>>
  /\ phase' = [phase EXCEPT ![w] = "committed"]
  /\ Quiet /\ UNCHANGED <<held, asked, log, seen>>

\* A deadlock (40P01), a lost connection, an error: nothing of it happened.
Abort(w) == \* G-18
  /\ phase[w] = "open"
  /\ phase' = [phase EXCEPT ![w] = "none"]
  /\ asked' = [asked EXCEPT ![w] = Idle] /\ log' = [log EXCEPT ![w] = <<>>]
  /\ Quiet /\ UNCHANGED <<held, seen>>

Crash(w) == \* G-18
  /\ phase[w] # "committed"
  /\ held' = {h \in held : h.worker # w}
  /\ seen' = [seen EXCEPT ![w] = {}]
  /\ phase' = [phase EXCEPT ![w] = "none"]
  /\ asked' = [asked EXCEPT ![w] = Idle] /\ log' = [log EXCEPT ![w] = <<>>]
  /\ Quiet

Reveal(w) == \* G-18
  LET e == Head(log[w])
      c == [job |-> e.job, fence |-> e.fence, worker |-> w, attempts |-> e.row.attempts]
  IN /\ phase[w] = "committed"
     /\ L!Contract!Tell(e.op, e.job, e.fence, e.answer)
     /\ status'   = [status EXCEPT ![e.job] = e.row.status]
     /\ attempts' = [attempts EXCEPT ![e.job] = e.row.attempts]
     /\ fence'    = [fence EXCEPT ![e.job] = e.row.fence]
     /\ worker'   = [worker EXCEPT ![e.job] = e.row.worker]
     /\ held' = CASE e.op = "dequeue" -> held \cup {c}
                  [] e.op \in L!Contract!HolderOps \ {"extend"} ->
                       {h \in held : ~(h.job = e.job /\ h.fence = e.fence /\ h.worker = w)}
                  [] OTHER -> held
     /\ log' = [log EXCEPT ![w] = Tail(@)]
     /\ phase' = [phase EXCEPT ![w] = IF Len(log[w]) = 1 THEN "none" ELSE "committed"]
     /\ UNCHANGED <<history, asked, seen>>

-----------------------------------------------------------------------------
(* Statements. `Ask` is a statement that takes its snapshot and finds rows       *)
(* there; `Write` writes one of them. `Pass` is a row that fails the re-test.    *)

CanAsk(w) == phase[w] = "open" /\ asked[w] = Idle /\ Len(log[w]) < Statements

Ask(w, op, found, k) ==
  /\ CanAsk(w)
  /\ asked' = [asked EXCEPT ![w] = [op |-> op, found |-> found, fence |-> k]]
  /\ Quiet /\ UNCHANGED <<held, phase, log, seen>>

Write(w, op, j, k, answer, row) ==
  /\ log' = [log EXCEPT ![w] = Append(@, [op |-> op, job |-> j, fence |-> k, answer |-> answer, row |-> row])]
  /\ asked' = [asked EXCEPT ![w] = Idle]
  /\ Quiet /\ UNCHANGED <<held, phase, seen>>

Left(w, j, s, a) == [status |-> s, attempts |-> a, fence |-> Row(w, j).fence, worker |-> "none"]
Deleted          == [status |-> "deleted", attempts |-> 0, fence |-> 0, worker |-> "none"]

Enqueue(w, j) == \* T-1
  /\ CanAsk(w) /\ Row(w, j).status = "absent" /\ ~LockedByOther(w, j)
  /\ ~KeyInDoubt(w, j) /\ KeyFree(w, j)
  /\ Write(w, "enqueue", j, 0, "ok", Left(w, j, "pending", 0))

\* The constraint refuses: nothing is written, the caller is told at once.
EnqueueDuplicate(w, j) == \* T-1
  /\ CanAsk(w) /\ Row(w, j).status = "absent" /\ ~LockedByOther(w, j)
  /\ log[w] = <<>>
  /\ ~KeyInDoubt(w, j) /\ ~KeyFree(w, j)
  /\ UNCHANGED <<held, phase, asked, log, seen>>
  /\ L!EnqueueDuplicate(j)

\* SELECT .. FOR NO KEY UPDATE SKIP LOCKED: the snapshot.
Select(w) == \* T-2 N-4
  /\ \E j \in Jobs : Row(w, j).status \in Claimable /\ Row(w, j).fence < MaxFence
  /\ Cardinality({h \in held : h.worker = w}) < Slots
  /\ Ask(w, "dequeue", {j \in Jobs : Row(w, j).status \in Claimable}, 0)

\* A row that another transaction has locked is skipped, one that is claimable no more fails the re-test.
Skip(w, j) == \* T-2 N-4
  /\ asked[w].op = "dequeue" /\ j \in asked[w].found
  /\ LockedByOther(w, j) \/ Row(w, j).status \notin Claimable \/ Row(w, j).fence >= MaxFence
  /\ asked' = [asked EXCEPT ![w] = IF @.found = {j} THEN Idle ELSE [@ EXCEPT !.found = @ \ {j}]]
  /\ Quiet /\ UNCHANGED <<held, phase, log, seen>>

Dequeue(w, j) == \* T-2
  /\ asked[w].op = "dequeue" /\ j \in asked[w].found
  /\ ~LockedByOther(w, j)
  /\ Row(w, j).status \in Claimable
  /\ Row(w, j).fence < MaxFence
  /\ \A i \in 1..Len(log[w]) : log[w][i].op # "dequeue"
  /\ Write(w, "dequeue", j, Row(w, j).fence + 1, "job",
           [status |-> "running", attempts |-> Row(w, j).attempts + 1, fence |-> Row(w, j).fence + 1, worker |-> w])

\* WHERE id = .. AND fence = .. AND worker = .. AND status = 'running'
Holds(w, h) ==
  /\ Row(w, h.job).status = "running"
  /\ Row(w, h.job).fence = h.fence
  /\ Row(w, h.job).worker = h.worker

HolderAsks(w, h) == \* G-3
  /\ h \in held /\ h.worker = w /\ Holds(w, h)
  /\ Ask(w, "holder", {h.job}, h.fence)

\* The snapshot has no such row: told at once.
LeaseLost(w, h, op) == \* G-3
  /\ CanAsk(w) /\ h \in held /\ h.worker = w /\ ~Holds(w, h)
  /\ Wrote(w, h.job) = {}
  /\ held' = held \ {h}
  /\ L!LeaseLost(op, [job |-> h.job, fence |-> h.fence, worker |-> w])
  /\ UNCHANGED <<phase, asked, log, seen>>

\* The snapshot had it, the row as it is now has not: the re-test after a lock wait.
LeaseLostAfterWait(w, h, op) == \* G-3
  /\ asked[w].op = "holder" /\ h \in held /\ h.worker = w /\ asked[w].found = {h.job} /\ asked[w].fence = h.fence
  /\ ~LockedByOther(w, h.job) /\ ~Holds(w, h)
  /\ held' = held \ {h} /\ asked' = [asked EXCEPT ![w] = Idle]
  /\ L!LeaseLost(op, [job |-> h.job, fence |-> h.fence, worker |-> w])
  /\ UNCHANGED <<phase, log, seen>>

Asked(w, h) ==
  /\ asked[w].op = "holder" /\ h \in held /\ h.worker = w
  /\ asked[w].found = {h.job} /\ asked[w].fence = h.fence
  /\ ~LockedByOther(w, h.job)

Complete(w, h) == \* T-3
  /\ Asked(w, h)
  /\ Holds(w, h)
  /\ Write(w, "complete", h.job, h.fence, "ok", Left(w, h.job, "completed", h.attempts))

FailRetry(w, h) == \* T-4
  /\ Asked(w, h) /\ h.attempts < Max(h.job)
  /\ Holds(w, h)
  /\ Write(w, "fail", h.job, h.fence, "failed", Left(w, h.job, "failed", h.attempts))

FailLast(w, h) == \* T-5
  /\ Asked(w, h) /\ h.attempts >= Max(h.job)
  /\ Holds(w, h)
  /\ Write(w, "fail", h.job, h.fence, "dead", Left(w, h.job, "dead", h.attempts))

Release(w, h) == \* T-6
  /\ Asked(w, h)
  /\ Holds(w, h)
  /\ Write(w, "release", h.job, h.fence, "pending", Left(w, h.job, "pending", h.attempts - 1))

Extend(w, h) == \* T-7
  /\ Asked(w, h)
  /\ Holds(w, h)
  /\ Write(w, "extend", h.job, h.fence, "ok", Row(w, h.job))

Look(w) == \* W-3
  /\ w \in Readers /\ phase[w] = "none"
  /\ seen' = [seen EXCEPT ![w] = {[job |-> j, fence |-> fence[j]] : j \in {i \in Jobs : status[i] = "running"}}]
  /\ seen' # seen
  /\ Quiet /\ UNCHANGED <<held, phase, asked, log>>

AskSweep(w, j) == \* T-8
  /\ \E r \in seen[w] : r.job = j /\ r.fence = Row(w, j).fence /\ Row(w, j).status = "running"
  /\ Ask(w, "sweep", {j}, Row(w, j).fence)

Sweep(w, j) == \* T-8
  /\ asked[w].op = "sweep" /\ j \in asked[w].found /\ ~LockedByOther(w, j)
  /\ Row(w, j).status = "running"
  /\ Row(w, j).fence = asked[w].fence
  /\ LET s == IF Row(w, j).attempts >= Max(j) THEN "dead" ELSE "failed"
     IN Write(w, "sweep", j, Row(w, j).fence, s, Left(w, j, s, Row(w, j).attempts))

AskCancel(w, j) == \* T-9
  /\ Row(w, j).status \in Active
  /\ Ask(w, "cancel", {j}, 0)

Cancel(w, j) == \* T-9
  /\ asked[w].op = "cancel" /\ j \in asked[w].found /\ ~LockedByOther(w, j)
  /\ Row(w, j).status \in Active
  /\ Write(w, "cancel", j, 0, "true", Left(w, j, "dead", Row(w, j).attempts))

AskRequeue(w, j) == \* T-10
  /\ Row(w, j).status \in {"dead", "failed"}
  /\ Ask(w, "requeue", {j}, 0)

Requeue(w, j) == \* T-10
  /\ asked[w].op = "requeue" /\ j \in asked[w].found /\ ~LockedByOther(w, j)
  /\ Row(w, j).status \in {"dead", "failed"}
  /\ ~KeyInDoubt(w, j) /\ KeyFree(w, j)
  /\ Write(w, "requeue", j, 0, "true", Left(w, j, "pending", 0))

AskCleanup(w, j) == \* T-11
  /\ Row(w, j).status \in Terminal
  /\ Ask(w, "cleanup", {j}, 0)

Cleanup(w, j) == \* T-11
  /\ asked[w].op = "cleanup" /\ j \in asked[w].found /\ ~LockedByOther(w, j)
  /\ Row(w, j).status \in Terminal
  /\ Write(w, "cleanup", j, 0, "deleted", Deleted)

\* The re-test of a sweep, cancel, requeue or cleanup fails: no row, nothing written.
Pass(w, j) == \* G-22
  /\ asked[w].op \in {"sweep", "cancel", "requeue", "cleanup"} /\ j \in asked[w].found
  /\ ~LockedByOther(w, j)
  /\ asked' = [asked EXCEPT ![w] = Idle]
  /\ Quiet /\ UNCHANGED <<held, phase, log, seen>>

Next ==
  \/ \E w \in Workers : Begin(w) \/ Commit(w) \/ Abort(w) \/ Crash(w) \/ Reveal(w) \/ Select(w) \/ Look(w)
  \/ \E w \in Workers, j \in Jobs :
       \/ Enqueue(w, j) \/ EnqueueDuplicate(w, j) \/ Skip(w, j) \/ Dequeue(w, j)
       \/ AskSweep(w, j) \/ Sweep(w, j) \/ AskCancel(w, j) \/ Cancel(w, j)
       \/ AskRequeue(w, j) \/ Requeue(w, j) \/ AskCleanup(w, j) \/ Cleanup(w, j) \/ Pass(w, j)
  \/ \E w \in Workers, j \in Jobs, k \in 1..MaxFence, a \in 1..Limit :
       LET h == [job |-> j, fence |-> k, worker |-> w, attempts |-> a]
       IN \/ HolderAsks(w, h) \/ Complete(w, h) \/ FailRetry(w, h) \/ FailLast(w, h)
          \/ Release(w, h) \/ Extend(w, h)
          \/ \E op \in LostOps : LeaseLost(w, h, op) \/ LeaseLostAfterWait(w, h, op)

Spec == Init /\ [][Next]_vars

RefinesLease == L!SpecTold

-----------------------------------------------------------------------------
\* Two open transactions never have written the same row.
G18_OneWriterPerRow == \* G-18
  \A v, w \in Workers : v # w => \A j \in Jobs : Wrote(v, j) = {} \/ Wrote(w, j) = {}

G6_HolderKnowsAttempts == \* G-6
  \A h \in held : status[h.job] = "running" /\ fence[h.job] = h.fence => attempts[h.job] = h.attempts

\* What a transaction has written is what becomes visible, whatever others do meanwhile.
G18_AllOrNothing == \* G-18
  [][\A w \in Workers : log'[w] # log[w] /\ phase[w] = "committed" =>
       /\ log'[w] = Tail(log[w])
       /\ status'[Head(log[w]).job] = Head(log[w]).row.status]_vars

G21_UniqueKey == L!G21_UniqueKey \* G-21
=============================================================================

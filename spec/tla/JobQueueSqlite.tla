--------------------------- MODULE JobQueueSqlite ---------------------------
(***************************************************************************)
(* L3 on SQLite, statement by statement. A write transaction begins          *)
(* IMMEDIATE: it has the only write lock, or the call gets BUSY. Its           *)
(* statements work on a draft that nobody else sees; COMMIT makes all of it    *)
(* durable at once; a rollback or a crash before that leaves nothing.          *)
(* A transaction is any one or two statements: that covers exchange, the       *)
(* _many forms, `completing` and the caller's own transaction. An outsider     *)
(* may hold the write lock for ever.                                          *)
(*                                                                         *)
(* Refines JobQueueLease. What a transaction did becomes visible there after   *)
(* its COMMIT, one answer at a time, while the write lock is still held: no    *)
(* other writer can tell the difference.                                      *)
(***************************************************************************)
EXTENDS Integers, FiniteSets, Sequences

CONSTANTS
  Jobs, NoJob, Once, Limit, Keyed, MaxFence, MaxGiven, Told, Workers, Slots, Begins, LostOps,
  Statements,    \* bound of the model: no more statements in one transaction
  Readers        \* bound of the model: the workers that look (to sweep, to clean up)

VARIABLES status, attempts, fence, reply, worker, starts, since,
  held,     \* what workers hold: [job, fence, worker, attempts], as dequeue gave it
  lock,     \* who is in a write transaction: a worker, "outsider" or "free"
  phase,    \* of that transaction: "none", "open" or "committed"
  draft,    \* job -> row, as that transaction sees it
  log,      \* its answers, not yet given: [op, job, fence, worker, answer, row]
  seen      \* worker -> what it has read outside of any transaction: [status, job, fence]

claims == {[job |-> h.job, fence |-> h.fence, worker |-> h.worker] : h \in held}

L == INSTANCE JobQueueLease WITH begun <- {}

rows    == <<status, attempts, fence, worker>>
history == <<starts, since>>
vars    == <<rows, reply, history, held, lock, phase, draft, log, seen>>
Rows    == <<rows, history, held, lock, phase, draft, log, seen>>

Active    == {"pending", "running", "failed"}
Terminal  == {"completed", "dead"}
Max(j)    == IF j \in Once THEN 1 ELSE Limit
RowOf(j)  == [status |-> status[j], attempts |-> attempts[j], fence |-> fence[j], worker |-> worker[j]]
Nothing   == [j \in {} |-> 0]

Init ==
  /\ L!Contract!Init
  /\ worker = [j \in Jobs |-> "none"]
  /\ starts = [j \in Jobs |-> 0] /\ since = [j \in Jobs |-> 0]
  /\ held = {} /\ lock = "free" /\ phase = "none" /\ draft = Nothing /\ log = <<>>
  /\ seen = [w \in Workers |-> {}]

Quiet == L!Contract!Silent /\ UNCHANGED <<worker, history>>
Writing(w) == lock = w /\ phase = "open" /\ Len(log) < Statements

-----------------------------------------------------------------------------
(* The transaction. *)

BeginImmediate(w) == \* G-18
  /\ lock = "free"
  /\ lock' = w /\ phase' = "open" /\ draft' = [j \in Jobs |-> RowOf(j)] /\ log' = <<>>
  /\ Quiet /\ UNCHANGED <<held, seen>>

Busy(w) == \* W-8
  /\ lock \notin {"free", w}
  /\ Quiet /\ UNCHANGED <<held, lock, phase, draft, log, seen>>

OutsiderBegins == \* W-3
  /\ lock = "free"
  /\ lock' = "outsider"
  /\ Quiet /\ UNCHANGED <<held, phase, draft, log, seen>>

OutsiderEnds == \* W-3
  /\ lock = "outsider"
  /\ lock' = "free"
  /\ Quiet /\ UNCHANGED <<held, phase, draft, log, seen>>

Commit(w) == \* G-18
  /\ lock = w /\ phase = "open" /\ log # <<>>
  /\ phase' = "committed"
  /\ Quiet /\ UNCHANGED <<held, lock, draft, log, seen>>

EndTransaction == lock' = "free" /\ phase' = "none" /\ draft' = Nothing /\ log' = <<>>

Rollback(w) == \* G-18
  /\ lock = w /\ phase = "open"
  /\ EndTransaction
  /\ Quiet /\ UNCHANGED <<held, seen>>

\* The process dies: an open transaction is rolled back by the next one that opens the file.
Crash(w) == \* G-18
  /\ lock = w => phase = "open"
  /\ held' = {h \in held : h.worker # w}
  /\ seen' = [seen EXCEPT ![w] = {}]
  /\ IF lock = w THEN EndTransaction ELSE UNCHANGED <<lock, phase, draft, log>>
  /\ Quiet

\* What a committed transaction answers, in the order of its statements.
Reveal == \* G-18
  LET e == Head(log)
      c == [job |-> e.job, fence |-> e.fence, worker |-> e.worker, attempts |-> e.row.attempts]
  IN /\ phase = "committed"
     /\ L!Contract!Tell(e.op, e.job, e.fence, e.answer)
     /\ status'   = [status EXCEPT ![e.job] = e.row.status]
     /\ attempts' = [attempts EXCEPT ![e.job] = e.row.attempts]
     /\ fence'    = [fence EXCEPT ![e.job] = e.row.fence]
     /\ worker'   = [worker EXCEPT ![e.job] = e.row.worker]
     /\ held' = CASE e.op = "dequeue"               -> held \cup {c}
                  [] e.op = "extend" /\ e.answer = "ok" -> held
                  [] e.op \in L!Contract!HolderOps  -> {h \in held : ~(h.job = e.job /\ h.fence = e.fence /\ h.worker = e.worker)}
                  [] OTHER                          -> held
     /\ IF Len(log) = 1 THEN EndTransaction
                        ELSE log' = Tail(log) /\ UNCHANGED <<lock, phase, draft>>
     /\ UNCHANGED <<history, seen>>

-----------------------------------------------------------------------------
(* Statements. `Write` is one statement that changes one row of the draft;      *)
(* its WHERE is what stands before it.                                         *)

Write(w, op, j, k, answer, row) ==
  /\ draft' = [draft EXCEPT ![j] = row]
  /\ log' = Append(log, [op |-> op, job |-> j, fence |-> k, worker |-> w, answer |-> answer, row |-> row])
  /\ Quiet /\ UNCHANGED <<held, lock, phase, seen>>

Left(j, s, a) == [status |-> s, attempts |-> a, fence |-> draft[j].fence, worker |-> "none"]
Deleted       == [status |-> "deleted", attempts |-> 0, fence |-> 0, worker |-> "none"]

KeyFree(j) == j \in Keyed => \A i \in Keyed \ {j} : draft[i].status \notin Active

\* WHERE id = .. AND fence = .. AND worker = .. AND status = 'running'
Holds(h) ==
  /\ draft[h.job].status = "running"
  /\ draft[h.job].fence = h.fence
  /\ draft[h.job].worker = h.worker

\* One item for each claim in a transaction.
Asks(w, h) == Writing(w) /\ h \in held /\ h.worker = w
              /\ \A i \in 1..Len(log) : ~(log[i].job = h.job /\ log[i].fence = h.fence)

Enqueue(w, j) == \* T-1
  /\ Writing(w) /\ draft[j].status = "absent" /\ KeyFree(j)
  /\ Write(w, "enqueue", j, 0, "ok", Left(j, "pending", 0))

EnqueueDuplicate(w, j) == \* T-1
  /\ Writing(w) /\ draft[j].status = "absent" /\ ~KeyFree(j)
  /\ Write(w, "enqueue", j, 0, "DuplicateKey", draft[j])

Dequeue(w, j) == \* T-2
  /\ Writing(w) /\ draft[j].status \in {"pending", "failed"}
  /\ draft[j].fence < MaxFence
  /\ Cardinality(UNION {{i} \X (1..draft[i].fence) : i \in Jobs}) < MaxGiven
  /\ Cardinality({h \in held : h.worker = w}) + Cardinality({i \in 1..Len(log) : log[i].op = "dequeue"}) < Slots
  /\ Write(w, "dequeue", j, draft[j].fence + 1, "job",
           [status |-> "running", attempts |-> draft[j].attempts + 1, fence |-> draft[j].fence + 1, worker |-> w])

Complete(w, h) == \* T-3
  /\ Asks(w, h) /\ Holds(h)
  /\ Write(w, "complete", h.job, h.fence, "ok", Left(h.job, "completed", h.attempts))

\* The holder decides by what dequeue told it; nothing is read here.
FailRetry(w, h) == \* T-4
  /\ Asks(w, h) /\ h.attempts < Max(h.job) /\ Holds(h)
  /\ Write(w, "fail", h.job, h.fence, "failed", Left(h.job, "failed", h.attempts))

FailLast(w, h) == \* T-5
  /\ Asks(w, h) /\ h.attempts >= Max(h.job) /\ Holds(h)
  /\ Write(w, "fail", h.job, h.fence, "dead", Left(h.job, "dead", h.attempts))

Release(w, h) == \* T-6
  /\ Asks(w, h) /\ Holds(h)
  /\ Write(w, "release", h.job, h.fence, "pending", Left(h.job, "pending", h.attempts - 1))

Extend(w, h) == \* T-7
  /\ Asks(w, h) /\ Holds(h)
  /\ Write(w, "extend", h.job, h.fence, "ok", draft[h.job])

LeaseLost(w, h, op) == \* G-3
  /\ Asks(w, h) /\ ~Holds(h)
  /\ Write(w, op, h.job, h.fence, "LeaseLost", draft[h.job])

\* A read outside of the transaction: a look before a sweep, candidates of a cleanup. It may be old when used.
Read(w) == \* W-3
  /\ w \in Readers /\ lock # w
  /\ seen' = [seen EXCEPT ![w] =
       {[status |-> status[j], job |-> j, fence |-> fence[j]] : j \in {i \in Jobs : status[i] \in {"running"} \cup Terminal}}]
  /\ seen' # seen
  /\ Quiet /\ UNCHANGED <<held, lock, phase, draft, log>>

Sweep(w, j) == \* T-8
  /\ Writing(w)
  /\ \E r \in seen[w] : r.job = j /\ r.status = "running" /\ r.fence = draft[j].fence
  /\ draft[j].status = "running"
  /\ LET s == IF draft[j].attempts >= Max(j) THEN "dead" ELSE "failed"
     IN Write(w, "sweep", j, draft[j].fence, s, Left(j, s, draft[j].attempts))

Cancel(w, j) == \* T-9
  /\ Writing(w) /\ draft[j].status \in Active
  /\ Write(w, "cancel", j, 0, "true", Left(j, "dead", draft[j].attempts))

Requeue(w, j) == \* T-10
  /\ Writing(w) /\ draft[j].status \in {"dead", "failed"} /\ KeyFree(j)
  /\ Write(w, "requeue", j, 0, "true", Left(j, "pending", 0))

Cleanup(w, j) == \* T-11
  /\ Writing(w)
  /\ \E r \in seen[w] : r.job = j /\ r.status \in Terminal
  /\ draft[j].status \in Terminal
  /\ Write(w, "cleanup", j, 0, "deleted", Deleted)

Next ==
  \/ Reveal \/ OutsiderBegins \/ OutsiderEnds
  \/ \E w \in Workers : BeginImmediate(w) \/ Busy(w) \/ Commit(w) \/ Rollback(w) \/ Crash(w) \/ Read(w)
  \/ \E w \in Workers, j \in Jobs :
       \/ Enqueue(w, j) \/ EnqueueDuplicate(w, j) \/ Dequeue(w, j) \/ Sweep(w, j)
       \/ Cancel(w, j) \/ Requeue(w, j) \/ Cleanup(w, j)
  \/ \E w \in Workers, j \in Jobs, k \in 1..MaxFence, a \in 1..Limit :
       LET h == [job |-> j, fence |-> k, worker |-> w, attempts |-> a]
       IN \/ Complete(w, h) \/ FailRetry(w, h) \/ FailLast(w, h) \/ Release(w, h) \/ Extend(w, h)
          \/ \E op \in LostOps : LeaseLost(w, h, op)

Spec == Init /\ [][Next]_vars

RefinesLease == L!SpecTold

-----------------------------------------------------------------------------
G18_AllOrNothing == \* G-18
  \* only a committed transaction changes what others see, and in the end all of it is there
  [][/\ rows' # rows => phase = "committed"
     /\ phase = "committed" /\ phase' = "none" =>
          \A j \in Jobs : RowOf(j)' = draft[j]]_vars

G18_OneWriter == \* G-18
  /\ phase # "none" => lock \in Workers
  /\ log # <<>> => phase # "none"

G6_HolderKnowsAttempts == \* G-6
  \* while a job runs its attempts are those that dequeue gave, so the holder may decide without reading
  \A h \in held : status[h.job] = "running" /\ fence[h.job] = h.fence => attempts[h.job] = h.attempts
=============================================================================

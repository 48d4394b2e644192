"""`python -m stress`: real processes, real kills, and a verdict on what they saw.

The promise: what the queue's clients were told, and what its table went through, is judged twice and independently. A
run that is called clean had no answer that `model.step` forbids and no step that the TLA+ specification does not have;
`--self-test` shows that the harness would have noticed.

    options.py    what a run is asked to do
    plan.py       what the jobs are and when the nemesis strikes: a pure function of the seed
    roles.py      the processes: producers, workers, bare clients, sweeper, canceller, cleaner (holder.py: bare clients)
    recording.py  a Queue that writes down each call before it is made and each answer after it
    history.py    the form of those files
    nemesis.py    kills, pauses, locks, full disks, lost connections (places.py: what each database allows)
    run.py        one run, from an empty database to the last look at the table

    explode.py    the clients' files, cut into one history per job
    judge.py      verdict (a), one job at a time: clauses.py (what is seen at a glance), search.py (linearizable?)
    moves.py      an operation as the model's call, with what was observed of the choices that the page leaves open
    order.py      verdict (a), over all jobs: order, emptiness, seq
    check.py      verdict (a) as a whole, in two processes
    trace.py      verdict (b): the database's own log against spec/tla/Trace.tla

    measure.py, charts.py, report.py    report.html
    faults.py, selftest.py              seeded faults, each of which must be found
"""

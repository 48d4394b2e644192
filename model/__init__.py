"""The oracle: what spec/lifecycle.md says a job queue may answer, and nothing else.

The promise: `step(state, call, result, now)` returns the state after the call, or the Violation of a named clause. It
judges and never chooses: where the page leaves a choice (an id, a seq, a backoff), the result says what was
observed, and every legal choice is accepted. It knows no database and no code of the queue; its rules were derived from
the prose alone, so that an error in the queue is not repeated here.

    state.py       a job, a set of jobs, a violation
    calls.py       the operations and their results, as plain values
    refusals.py    what is refused at the call, before anything is stored (section 8)
    step.py        one guarded rule for each operation
    invariants.py  the guarantees that can be said of one state, or of two that follow each other
    graph.py       every legal answer, and the reachable graph of a small scope

The operations and their results are imported from model.calls, all the rest from here.
"""

from model.graph import Edge, Graph, answers, graph
from model.invariants import between, check
from model.refusals import refused
from model.state import EMPTY, HIDDEN, Claim, Job, State, Violation
from model.step import Rules, Unobserved, legal, shown, step

__all__ = ["EMPTY", "HIDDEN", "Claim", "Edge", "Graph", "Job", "Rules", "State", "Unobserved", "Violation"]
__all__ += ["answers", "between", "check", "graph", "legal", "refused", "shown", "step"]

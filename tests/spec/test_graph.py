"""The graph that TLC dumps is read right, and its edges tell what was called."""

from __future__ import annotations

import pytest

from spec import graph, manifest


@pytest.fixture(scope="module")
def one_job() -> graph.Graph:
    return graph.dumped("graph_one_job.cfg")


def test_values() -> None:
    assert graph.value_of('[a |-> "x", b |-> {2, 1}, c |-> <<TRUE, {}>>]') == {"a": "x", "b": [1, 2], "c": [True, []]}
    assert graph.value_of('(1 :> "x" @@ 2 :> [n |-> -3])') == {"1": "x", "2": {"n": -3}}


def test_as_many_states_as_are_pinned(one_job: graph.Graph) -> None:
    (model,) = [model for model in manifest.load() if model.name == "graph_one_job"]
    assert len(one_job.states) == model.pinned["distinct"]
    assert len({graph.canonical(state) for state in one_job.states.values()}) == len(one_job.states)


def test_the_initial_state(one_job: graph.Graph) -> None:
    assert one_job.states[one_job.initial] == {
        "status": {"a": "absent"}, "attempts": {"a": 0}, "fence": {"a": 0}, "worker": {"a": "none"},
        "claims": [], "expired": [],
    }  # fmt: skip


def test_every_edge_tells_its_arguments(one_job: graph.Graph) -> None:
    for source, action, target in one_job.edges:
        before, after = one_job.states[source], one_job.states[target]
        assert list(graph.arguments(before, action, after)), (before, action, after)


def test_a_stale_holder_loses_only_its_claim(one_job: graph.Graph) -> None:
    lost = [edge for edge in one_job.edges if edge[1] == "LeaseLost"]
    assert lost
    for source, _, target in lost:
        before, after = one_job.states[source], one_job.states[target]
        assert {**before, "claims": None} == {**after, "claims": None}
        assert len(before["claims"]) == len(after["claims"]) + 1


def test_the_worker_that_holds_two_claims_of_one_job_is_there(one_job: graph.Graph) -> None:
    assert any({claim["worker"] for claim in state["claims"]} == {"u"} and len(state["claims"]) == 2
               for state in one_job.states.values())  # fmt: skip

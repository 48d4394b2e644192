"""Is a history linearizable? Wing and Gong's search, depth first, against the model.

An operation can take its effect at any instant between call and answer; one without an answer at any instant after
its call, until its process was gone, or never. The search looks for one order that respects this and that the model
allows at each step. A history without overlap has one order only, and costs one step of the model for each operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from model import State, Violation
from stress.moves import Op, Outcome

Moves = Callable[[State, Op], Iterator[Outcome]]
BUDGET = 60_000  # Steps of the model after which a history stays undecided.


@dataclass(slots=True)
class Found:
    """`path` is an order that the model allows, with the state after each operation; None: there is none.

    Then `reached` is the longest order that it allows, and `refusals` why nothing could follow. `undecided`: the budget
    was used up first.
    """

    path: list[tuple[Op, State]] | None
    reached: list[tuple[Op, State]] = field(default_factory=list)
    refusals: list[tuple[Op, Violation]] = field(default_factory=list)
    undecided: bool = False


class Search:
    def __init__(self, ops: Sequence[Op], moves: Moves, start: State) -> None:
        self._ops = sorted(ops, key=lambda op: (op.inv, op.ret))
        self._moves, self._start = moves, start
        self._needed = sum(1 << index for index, op in enumerate(self._ops) if op.required)
        self._seen: set[tuple[int, State]] = set()
        self._spent = 0
        self._best: list[tuple[Op, State]] = []
        self._refusals: list[tuple[Op, Violation]] = []
        self._best_done = -1

    def run(self) -> Found:
        path: list[tuple[Op, State]] = []
        stack = [self._steps(0, self._start, path)]
        masks = [0]
        while stack:
            if masks[-1] & self._needed == self._needed:
                return Found(path)
            step = next(stack[-1], None)
            if self._spent > BUDGET:
                return Found(None, self._best, self._refusals, undecided=True)
            if step is None:
                stack.pop()
                masks.pop()
                if path:
                    path.pop()
                continue
            index, state = step
            mask = masks[-1] | 1 << index
            path.append((self._ops[index], state))
            masks.append(mask)
            stack.append(self._steps(mask, state, path))
        return Found(None, self._best, self._refusals)

    def _steps(self, mask: int, state: State, path: list[tuple[Op, State]]) -> Iterator[tuple[int, State]]:
        """Each operation that can be next, with each state that it can lead to."""
        candidates = self._candidates(mask)
        if len(candidates) > 1:
            if (mask, state) in self._seen:
                return
            self._seen.add((mask, state))
        refusals = []
        for index in candidates:
            op = self._ops[index]
            for outcome in self._moves(state, op):
                self._spent += 1
                if isinstance(outcome, Violation):
                    refusals.append((op, outcome))
                else:
                    yield index, outcome
        self._remember(mask, path, refusals)

    def _candidates(self, mask: int) -> list[int]:
        """Those that no unfinished operation must precede, and that had not ended before the last one began."""
        first_return, latest, found = None, 0, []
        for index, op in enumerate(self._ops):
            if mask >> index & 1:
                latest = max(latest, op.inv)
                continue
            if first_return is not None and op.inv > first_return:
                break
            found.append(index)
            if op.required and (first_return is None or op.ret < first_return):
                first_return = op.ret
        within = [index for index in found if self._ops[index].inv <= (first_return or self._ops[index].inv)]
        live = [index for index in within if self._ops[index].required or self._ops[index].ret >= latest]
        return sorted(live, key=lambda index: (not self._ops[index].required, self._ops[index].ret))

    def _remember(self, mask: int, path: list[tuple[Op, State]], refusals: list[tuple[Op, Violation]]) -> None:
        done = (mask & self._needed).bit_count()
        if done > self._best_done:
            self._best_done, self._best, self._refusals = done, list(path), refusals

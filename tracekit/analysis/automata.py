"""Finite automata over the records of a trace, whole columns at a time.

The models follow the behaviour that the kernel's runtime verification describes for its scheduler
monitors (Documentation/trace/rv: sssw, wip, opid, sco) as far as scheduler records show it; they
are written anew from that description.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Small = NDArray[np.int8]


@dataclass(frozen=True)
class Automaton:
    """A deterministic automaton that resumes after a violation.

    Attributes
    ----------
    name
        What the rule is called.
    says
        The rule in one sentence.
    initial
        State before the first event.
    moves
        State to event to next state. An event that a state does not list breaks the rule.
    resumes
        Event to the state after it when it broke the rule.
    """

    name: str
    says: str
    initial: str
    moves: Mapping[str, Mapping[str, str]]
    resumes: Mapping[str, str]

    @property
    def states(self) -> tuple[str, ...]:
        """All states, the initial one first."""
        return (self.initial, *(s for s in self.moves if s != self.initial))

    @property
    def events(self) -> tuple[str, ...]:
        """All events."""
        return tuple(self.resumes)

    def table(self) -> tuple[Small, NDArray[np.bool_]]:
        """Next state by event and state, and whether the move is allowed."""
        number = {s: i for i, s in enumerate(self.states)}
        to = np.zeros((len(self.events), len(number)), dtype=np.int8)
        allowed = np.zeros(to.shape, dtype=bool)
        for e, event in enumerate(self.events):
            for state, s in number.items():
                target = self.moves.get(state, {}).get(event)
                allowed[e, s] = target is not None
                to[e, s] = number[self.resumes[event] if target is None else target]
        return to, allowed

    def violations(self, event: Ints, key: Ints) -> NDArray[np.bool_]:
        """Which events break the rule.

        Parameters
        ----------
        event
            Numbers of events, as in `events`.
        key
            Whose event it is (a task, a CPU). Rows of one key stand together, in time order.

        Returns
        -------
        numpy.ndarray
            True for each event that its state does not allow.
        """
        if not len(event):
            return np.zeros(0, dtype=bool)
        to, allowed = self.table()
        first = np.r_[True, key[1:] != key[:-1]]
        place = np.arange(len(event)) - np.maximum.accumulate(np.where(first, np.arange(len(event)), 0))
        reached = to[event]
        step = 1
        # What a run of events does to every state: runs of 2, 4, 8, ... events are put together.
        while step <= int(place.max()):
            at = np.flatnonzero(place >= step)
            reached[at] = np.take_along_axis(reached[at], reached[at - step].astype(np.int64), axis=1)
            step *= 2
        before = np.zeros(len(event), dtype=np.int64)
        before[1:] = np.where(first[1:], 0, reached[:-1, 0])
        broken: NDArray[np.bool_] = ~allowed[event, before]
        return broken


#: A task enters and leaves CPUs in turn.
ONE_CPU = Automaton(
    "one-cpu",
    "a task that has a CPU leaves it before it enters another",
    "unknown",
    {
        "unknown": {"in": "on", "out": "off"},
        "on": {"out": "off"},
        "off": {"in": "on"},
    },
    {"in": "on", "out": "off"},
)
#: After the kernel's sssw: a task that went to sleep runs again only behind a wakeup.
SLEEP_WAKEUP = Automaton(
    "sleep-wakeup",
    "a task that went to sleep does not run before it is woken",
    "unknown",
    {
        "unknown": {"in": "running", "sleep": "asleep", "leave": "ready", "wake": "unknown", "end": "ended"},
        "running": {"sleep": "asleep", "leave": "ready", "wake": "woken", "end": "ended"},
        # The waker may write its record before the sleeper's own switch is written.
        "woken": {"sleep": "ready", "leave": "ready", "wake": "woken", "end": "ended"},
        "asleep": {"wake": "ready"},
        "ready": {"in": "running", "wake": "ready"},
        "ended": {"wake": "ended", "in": "running"},
    },
    {"in": "running", "sleep": "asleep", "leave": "ready", "wake": "ready", "end": "ended"},
)
MODELS = (ONE_CPU, SLEEP_WAKEUP)

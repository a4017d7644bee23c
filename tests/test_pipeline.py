"""Work in another thread: in order, bounded, errors where the caller sees them."""

from __future__ import annotations

import threading
import time

import pytest

from tracekit.io.pipeline import Behind


def test_pieces_come_in_order_and_all_are_done_at_the_end() -> None:
    done: list[int] = []
    with Behind(done.append, 2) as behind:
        for piece in range(100):
            behind.give(piece)
    assert done == list(range(100))
    assert not [t for t in threading.enumerate() if t.name == "behind"]


def test_no_more_than_so_many_pieces_are_on_the_way() -> None:
    go, given = threading.Event(), []

    def wait(piece: int) -> None:
        go.wait()

    def give() -> None:
        with Behind(wait, 3) as behind:
            for piece in range(10):
                behind.give(piece)
                given.append(piece)

    giver = threading.Thread(target=give)
    giver.start()
    time.sleep(0.2)
    # One is being done, three wait, and the next is held.
    assert len(given) <= 4
    go.set()
    giver.join()
    assert len(given) == 10


def test_an_error_is_raised_for_the_caller_and_ends_the_work() -> None:
    done: list[int] = []

    def work(piece: int) -> None:
        if piece == 3:
            raise ValueError("piece 3")
        done.append(piece)

    def give() -> None:
        with Behind(work, 1) as behind:
            for piece in range(1000):
                behind.give(piece)

    with pytest.raises(ValueError, match="piece 3"):
        give()
    assert done == [0, 1, 2]


def test_nothing_more_is_done_when_the_caller_gives_up() -> None:
    begun, go, done = threading.Event(), threading.Event(), []

    def work(piece: int) -> None:
        begun.set()
        go.wait()
        done.append(piece)

    def give() -> None:
        with Behind(work, 8) as behind:
            for piece in range(5):
                behind.give(piece)
            begun.wait()
            threading.Timer(0.05, go.set).start()
            raise KeyError

    with pytest.raises(KeyError):
        give()
    assert done == [0]

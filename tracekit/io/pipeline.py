"""Work handed to another thread piece by piece, in order, with a bounded number of pieces on the way."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

__all__ = ["Behind"]

T = TypeVar("T")


class Behind(Generic[T]):
    """Calls a function with each piece in a thread of its own, one after the other.

    An error in it is raised where the next piece is given, or at the end; the pieces after it are dropped.

    Parameters
    ----------
    work
        What is done with each piece.
    most
        Pieces on the way; giving a further one waits.
    """

    def __init__(self, work: Callable[[T], object], most: int) -> None:
        self._work = work
        self._pieces: queue.Queue[T | None] = queue.Queue(most)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="behind", daemon=True)

    def __enter__(self) -> Behind[T]:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and self._error is None:
            # The caller gave up: nothing that waits is done any more.
            self._error = error
        self._pieces.put(None)
        self._thread.join()
        if kind is None:
            self._raise()

    def give(self, piece: T) -> None:
        """Hand over the next piece."""
        self._raise()
        self._pieces.put(piece)

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while (piece := self._pieces.get()) is not None:
            if self._error is not None:
                continue
            try:
                self._work(piece)
            except BaseException as error:
                self._error = error

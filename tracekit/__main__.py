"""`python -m tracekit`, and the command `tracekit`.

What Ctrl-C does is settled before anything else is loaded: that takes a tenth of a second, and an
interrupt in it would print a traceback of the loader. So nothing is imported at the top.
"""


def run() -> None:
    """Be the program, see `tracekit.cli.run`."""
    import os
    import signal
    import sys

    def interrupted(number: int, _frame: object) -> None:
        # Nothing has been done yet.
        os._exit(128 + number)

    # Ctrl-C stays ignored where it was, as in what a shell runs in the background.
    early = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if early:
        signal.signal(signal.SIGINT, interrupted)
    from tracekit.cli import run as command

    try:
        if early:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        command()
    except KeyboardInterrupt:
        # In a command it has become an exit status.
        if "--debug" in sys.argv:
            raise
        os._exit(128 + signal.SIGINT)


if __name__ == "__main__":
    run()

"""`python -m tracekit`."""

from tracekit.cli import run

if __name__ == "__main__":
    run()

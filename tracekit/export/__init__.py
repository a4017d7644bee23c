"""Writes traces in other tools' formats."""

"""Licences of what is linked into the wheel and of what it needs."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

#: Licences that go with Apache-2.0 in one work, without duties beyond a notice.
FINE = {
    "MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "Zlib", "ISC", "BSL-1.0", "Unlicense", "CC0-1.0",
    "Unicode-3.0", "0BSD", "PSF-2.0", "Python-2.0", "HPND", "MIT-CMU", "Apache-2.0 WITH LLVM-exception",
}  # fmt: skip
ALLOWED = {name.lower() for name in FINE}
#: What packages without an expression say in its place.
OLD_NAMES = {
    "MIT License": "MIT", "BSD License": "BSD-3-Clause", "Apache Software License": "Apache-2.0",
    "Python Software Foundation License": "PSF-2.0", "Apache 2.0": "Apache-2.0", "Apache License 2.0": "Apache-2.0",
    "Dual License": "Apache-2.0 OR BSD-3-Clause", "BSD": "BSD-3-Clause", "3-Clause BSD License": "BSD-3-Clause",
}  # fmt: skip


def fine(expression: str) -> bool:
    """Whether one of the choices that an SPDX expression gives is fine."""
    text = expression.replace("/", " OR ").replace("(", " ( ").replace(")", " ) ")
    words = re.sub(r"\s+WITH\s+", "\0WITH\0", text).split()
    tokens = [w.replace("\0", " ") for w in words]
    python = " ".join(
        {"OR": "or", "AND": "and", "(": "(", ")": ")"}.get(t) or str(int(t.lower() in ALLOWED))
        for t in tokens
    )
    # Only these words are left, so that nothing but logic is computed.
    assert re.fullmatch(r"(?:or|and|0|1|\(|\)|\s)+", python), expression
    return _logic(python.replace("(", " ( ").replace(")", " ) ").split())


def _logic(tokens: list[str]) -> bool:
    """`and` binds closer than `or`."""

    def either() -> bool:
        value = both()
        while tokens and tokens[0] == "or":
            tokens.pop(0)
            right = both()
            value = value or right
        return value

    def both() -> bool:
        value = one()
        while tokens and tokens[0] == "and":
            tokens.pop(0)
            right = one()
            value = value and right
        return value

    def one() -> bool:
        token = tokens.pop(0)
        if token == "(":
            value = either()
            tokens.pop(0)
            return value
        return token == "1"

    return either()


@pytest.mark.parametrize(
    ("expression", "is_fine"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("MIT OR GPL-3.0-only", True),
        ("MIT AND GPL-3.0-only", False),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", True),
        ("(MIT OR Apache-2.0) AND LGPL-2.1-or-later", False),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("MIT/Apache-2.0", True),
    ],
)
def test_expressions(expression: str, is_fine: bool) -> None:
    assert fine(expression) is is_fine


def test_every_crate_has_a_fine_licence(root: Path) -> None:
    cargo = shutil.which("cargo")
    assert cargo, "cargo builds the extension, so it is here"
    command = [cargo, "metadata", "--offline", "--locked", "--format-version", "1"]
    told = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True, timeout=120).stdout
    crates = {p["name"]: p["license"] or "none" for p in json.loads(told)["packages"]}
    assert len(crates) > 50
    assert {name: text for name, text in crates.items() if not fine(text)} == {}


def _needed(names: list[str]) -> Iterator[metadata.Distribution]:
    """The packages and all that they need, without extras."""
    seen: set[str] = set()
    while names:
        name = re.split(r"[\s;<>=!~\[(]", names.pop())[0].lower().replace("_", "-")
        if name in seen:
            continue
        seen.add(name)
        found = metadata.distribution(name)
        yield found
        names += [r for r in found.requires or [] if "extra ==" not in r and not _elsewhere(r)]


def _elsewhere(requirement: str) -> bool:
    return any(
        f'== "{s}"' in requirement or f"== '{s}'" in requirement for s in ("win32", "Windows", "emscripten")
    )


def test_every_package_that_is_needed_has_a_fine_licence(root: Path) -> None:
    setup = configparser.ConfigParser()
    setup.read(root / "setup.cfg")
    wanted = setup["options"]["install_requires"].split("\n")
    bad = {}
    for package in _needed([w.strip() for w in wanted if w.strip()]):
        told = package.metadata
        classifiers = [
            c.rpartition(" :: ")[2] for c in told.get_all("Classifier") or [] if c.startswith("License")
        ]
        plain = (told.get("License") or "").strip().split("\n")[0]
        texts = [t for t in (told.get("License-Expression"), *classifiers, plain) if t]
        known = [OLD_NAMES.get(t, t) for t in texts]
        if not any(re.fullmatch(r"[\w.\-+ ()/]+", t) and fine(t) for t in known):
            bad[told["Name"]] = texts
    assert bad == {}

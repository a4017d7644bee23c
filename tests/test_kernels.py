"""Policies that are named by a kernel: `linux-6.12`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import tracekit as tk
from tracekit.cli import main
from tracekit.registry import check_policy
from tracekit.whatif.kernels import infer
from tracekit.whatif.not_modelled import NotModelledError

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "fixtures" / "demo" / "slice-default.dat"
KERNELS = ["2.4.37", "2.6.20", "2.6.32", "5.10.0-8-amd64", "6.6", "6.12.111+deb12-amd64", "7.3"]
KNOWN = [p["name"] for p in tk.policies()]


def run(*args: str, status: int = 0) -> Result:
    result = CliRunner().invoke(main, args, prog_name="tracekit")
    assert result.exit_code == status, (result.output, result.exception)
    return result


@pytest.mark.parametrize("release", KERNELS)
def test_a_kernel_is_the_policy_that_its_traces_are_replayed_under(release: str) -> None:
    policy, why = infer({"os": "linux", "kernel": release}, KNOWN)
    assert check_policy(f"linux-{release}") == check_policy(policy)
    assert release in why


def test_parameters_follow_the_kernel() -> None:
    assert check_policy("linux-6.12:base_slice=10ms") == check_policy("eevdf:version=6.12,base_slice=10ms")
    with pytest.raises(tk.ReplayError, match="expected its version"):
        check_policy("linux-next")


def test_a_comparison_keeps_the_name_and_means_the_policy() -> None:
    asked = tk.compare(DEMO, ["linux-6.12.111", "eevdf:version=6.12,yield=forfeit"], runs=2)
    named, spelled = asked.replays.values()
    assert list(asked.replays) == ["linux-6.12.111", "eevdf:version=6.12,yield=forfeit"]
    assert named.policy == spelled.policy
    own = [asked.table.filter(policy=label).drop("policy") for label in asked.replays]
    assert own[0].equals(own[1])
    # As for the recorded kernel itself: what is known of the change of kernels is used in both.
    same = tk.compare(DEMO, "linux-6.1", identity="linux-6.1", runs=1)
    assert same.identity_policy == next(iter(same.replays.values())).policy


def test_an_unknown_mechanism_of_a_kernel_is_refused_by_name() -> None:
    with pytest.raises(NotModelledError, match="core scheduling of SMT"):
        tk.compare(DEMO, "linux-6.12:core_scheduling=on", runs=1)


def test_commands_take_it() -> None:
    assert "eevdf: " in run("policies", "show", "linux-6.12").stdout
    assert run("policies", "check", "linux-6.1").stdout.startswith("cfs:form=6.1,")
    found = run("replay", str(DEMO), "--policy", "linux-6.12", "--json").stdout
    assert '"eevdf:version=6.12' in found
    error = run("compare", str(DEMO), "--policy", "linux-six", "--quick", status=2).stderr
    assert "no kernel six: expected its version" in error

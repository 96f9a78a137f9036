# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Folded host names, compared with ClusterShell's nodeset where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold, hostlist, unfold


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["leaf1"], "leaf1"),
        (["gpu001", "gpu002", "gpu003", "gpu009"], "gpu[001-003,009]"),
        (["a9", "a10", "a11"], "a[9-11]"),
        (["a09", "a10"], "a[09-10]"),
        (["controller", "gpu1", "gpu2"], "controller,gpu[1-2]"),
        ([f"leaf-{su:02}-{at}" for su in (1, 2, 3) for at in (1, 2)], "leaf-[01-03]-[1-2]"),
        (["leaf-01-1", "leaf-01-2", "leaf-02-1"], "leaf-01-[1-2],leaf-02-1"),
        (["gpu1.example.com", "gpu2.example.com"], "gpu[1-2].example.com"),
        (["a1", "a1"], "a1"),
        (["a1", "a3", "a5"], "a[1,3,5]"),
        (["a1", "a2", "a4", "a5", "a6", "a8"], "a[1-2,4-6,8]"),
        (["a8", "a9", "a10", "a099", "a100"], "a[099-100],a[8-10]"),
        (["a1", "a01", "a001"], "a001,a01,a1"),
        (["a0", "a1"], "a[0-1]"),
        (["a00", "a01"], "a[00-01]"),
        (["1", "2", "x"], "[1-2],x"),
        (["b", "a"], "a,b"),
        (["a1b", "a2b", "a1c", "a2d"], "a1c,a2d,a[1-2]b"),
        ([f"{rack}-{at}x" for rack in ("r1", "r2", "s1") for at in (1, 2)], "r[1-2]-[1-2]x,s1-[1-2]x"),
        ([f"p{pod}-r{rack}-{at}" for pod in (1, 2) for rack in (3, 4) for at in (5, 6)], "p[1-2]-r[3-4]-[5-6]"),
        (["p1-r1-1", "p1-r1-2", "p2-r2-1", "p2-r2-2"], "p1-r1-[1-2],p2-r2-[1-2]"),
    ],
)
def test_host_names_are_folded(names, text):
    assert fold(names) == text


@pytest.mark.skipif(not shutil.which("nodeset"), reason="clustershell is not installed")
@given(st.lists(st.from_regex(r"[a-c]-?[0-9]{1,2}(-[0-9]{1,2})?", fullmatch=True), min_size=1, max_size=8))
@settings(max_examples=3)  # each starts a process of half a second
def test_nodeset_expands_folded_names(names):
    done = subprocess.run(["nodeset", "-e", "-S", "\n", fold(names)], capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == sorted(set(names))


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["gpu01a", "gpu02a"], "gpu01a,gpu02a"),
        (["r1n1", "r2n1"], "r1n1,r2n1"),
        (["r1n1", "r1n2", "r2n1", "r2n2", "x"], "r[1-2]n[1-2],x"),
        (["gpu1.example.com", "gpu2.example.com"], "gpu1.example.com,gpu2.example.com"),
        (["n08", "n09", "n10", "n8", "n100"], "n[08-10],n[8,100]"),
    ],
)
def test_a_list_for_slurm_has_ranges_at_the_end_of_names_only(names, text):
    assert sorted(hostlist(names).split(",")) == sorted(text.split(","))


@pytest.mark.skipif(not shutil.which("scontrol"), reason="Slurm is not installed")
@given(names=st.lists(st.from_regex(r"[a-c]-?[0-9]{1,2}(-[0-9]{1,2})?[a-b]?", fullmatch=True), min_size=1, max_size=8))
@settings(max_examples=5, deadline=None)
def test_slurm_expands_its_list_of_names(tmp_path_factory, names):
    conf = tmp_path_factory.mktemp("slurm") / "slurm.conf"
    conf.write_text("ClusterName=x\nSlurmctldHost=localhost\nNodeName=x\n")
    done = subprocess.run(
        ["scontrol", "show", "hostnames", hostlist(names)],
        env={**os.environ, "SLURM_CONF": str(conf)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert sorted(done.stdout.split()) == sorted(set(names))


def test_lists_with_several_ranges_are_unfolded():
    assert unfold("r[1-2]n[08-10],x,y[1,3]") == ["r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10", "x", "y1", "y3"]


@given(st.lists(st.from_regex(r"[a-c]{1,2}[0-9]{1,3}([a-b][0-9]{1,2})?", fullmatch=True), unique=True))
def test_folded_names_are_unfolded_again(names):
    assert sorted(unfold(fold(names))) == sorted(unfold(hostlist(names))) == sorted(names)

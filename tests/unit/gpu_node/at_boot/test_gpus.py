# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""MIG and locked clocks, with nvidia-smi's answers made up."""

from __future__ import annotations

import json

import pytest
from gpu_nodes import Node
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.at_boot import gpus
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError

FIRST, SECOND = "00000000:1B:00.0", "00000000:43:00.0"
PENDING = "MIG of GPU {} is turned off when the GPU is reset, or at the next boot"


class Smi(Node):
    """A node whose driver is loaded; ``answers`` are those of nvidia-smi's query, the last one for all further ones."""

    def __init__(self, root, *answers):
        super().__init__(root)
        self.queries = list(answers)
        self.write(gpus.LOADED, "x\n")
        self.write(f"{gpus.MODULE}/version", "595.91.07\n")

    def run(self, argv, stdin=None, timeout_s=None):
        self.ran.append(argv)
        if argv == gpus.QUERY:
            return self.queries.pop(0) if len(self.queries) > 1 else self.queries[0]
        return ""


def modes(first, second):
    return f" {SECOND} , {second} \n{FIRST}, {first}\n"


def mig_off(gpu):
    return ["nvidia-smi", "-i", gpu, "-mig", "0"]


def locked(gpu, limits):
    return ["nvidia-smi", "-i", gpu, f"--lock-gpu-clocks={limits}"]


@pytest.mark.parametrize(
    ("before", "later", "changed", "pending"),
    [
        # MIG's current mode, and the mode after the next reset of the GPU.
        ("Enabled, Enabled", "Disabled, Disabled", [FIRST], []),
        ("Enabled, Enabled", "Enabled, Disabled", [FIRST], [FIRST]),
        ("Enabled, Disabled", "Enabled, Disabled", [], [FIRST]),
        ("Disabled, Enabled", "Disabled, Disabled", [FIRST], []),
        ("Disabled, Disabled", "Disabled, Disabled", [], []),
    ],
)
def test_mig_is_turned_off_on_the_gpus_that_have_it(tmp_path, before, later, changed, pending):
    node = Smi(tmp_path, modes(before, "[N/A], [N/A]"), modes(later, "[N/A], [N/A]"))
    done = gpus.ensure(node, True, [])
    assert [argv for argv in node.ran if argv != gpus.QUERY] == [mig_off(gpu) for gpu in changed]
    assert (done.before, done.after) == (
        {f"{gpu} MIG": "Enabled" for gpu in changed},
        {f"{gpu} MIG": "Disabled" for gpu in changed},
    )
    assert done.pending == [PENDING.format(gpu) for gpu in pending]
    assert done.facts == {"gpus": [FIRST, SECOND]}


def test_check_mode_does_not_turn_mig_off_and_reports_it_as_pending(tmp_path):
    node = Smi(tmp_path, modes("Enabled, Enabled", "Enabled, Enabled"), modes("x, x", "x, x"))
    done = gpus.ensure(node, True, [], check=True)
    assert node.ran == [gpus.QUERY]
    assert done.after == {f"{FIRST} MIG": "Disabled", f"{SECOND} MIG": "Disabled"}
    assert done.pending == [PENDING.format(FIRST), PENDING.format(SECOND)]


def test_nothing_is_queried_if_nothing_is_asked_or_no_mig_is_on(tmp_path):
    node = Smi(tmp_path, modes("Disabled, Disabled", "Disabled, Disabled"))
    assert gpus.ensure(node, False, []).facts == {}
    assert node.ran == []
    gpus.ensure(node, True, [])
    assert node.ran == [gpus.QUERY]


def test_mig_stays_on_if_only_clocks_are_asked(tmp_path):
    node = Smi(tmp_path, modes("Enabled, Enabled", "Enabled, Enabled"))
    done = gpus.ensure(node, False, [1000, 1980])
    assert node.ran == [gpus.QUERY, locked(FIRST, "1000,1980"), locked(SECOND, "1000,1980")]
    assert done.after == {"locked clocks, MHz": [1000, 1980]}
    assert json.loads(node.read(gpus.NOTE))["gpus"] == [FIRST, SECOND]
    assert node.read_bytes(gpus.NOTE).endswith(b"}\n")


def test_clocks_are_not_locked_in_check_mode(tmp_path):
    node = Smi(tmp_path, modes("Disabled, Disabled", "Disabled, Disabled"))
    assert gpus.ensure(node, False, [1000, 1980], check=True).after == {"locked clocks, MHz": [1000, 1980]}
    assert node.ran == [gpus.QUERY]
    assert not node.exists(gpus.NOTE)


def test_clocks_are_locked_again_with_other_limits_or_gpus(tmp_path):
    node = Smi(tmp_path, f"{FIRST}, Disabled, Disabled\n")
    gpus.ensure(node, False, [1000, 1980])
    other = gpus.ensure(node, False, [1000, 1500])
    assert (other.before, other.after) == ({"locked clocks, MHz": [1000, 1980]}, {"locked clocks, MHz": [1000, 1500]})
    node.queries = [modes("Disabled, Disabled", "Disabled, Disabled")]
    more = gpus.ensure(node, False, [1000, 1500])
    assert more.before == {"locked clocks, MHz": [1000, 1500], "GPUs with locked clocks": [FIRST]}
    assert more.after == {"locked clocks, MHz": [1000, 1500], "GPUs with locked clocks": [FIRST, SECOND]}
    assert more.changed
    assert not gpus.ensure(node, False, [1000, 1500]).changed


@pytest.mark.parametrize("note", ["", "no JSON", "[]", "3", '{"driver": 0, "clocks_mhz": [1000, 1980]}'])
def test_clocks_are_locked_again_if_the_note_is_not_of_this_driver(tmp_path, note):
    node = Smi(tmp_path, f"{FIRST}, Disabled, Disabled\n")
    node.write(gpus.NOTE, note)
    done = gpus.ensure(node, False, [1000, 1980])
    assert (done.before, done.after) == ({"locked clocks, MHz": None}, {"locked clocks, MHz": [1000, 1980]})
    assert node.ran == [gpus.QUERY, locked(FIRST, "1000,1980")]


@pytest.mark.parametrize("line", ["No devices were found", f"{FIRST}, Disabled", f"{FIRST}, a, b, c"])
def test_an_unexpected_answer_of_nvidia_smi_is_refused(tmp_path, line):
    with raises(HostError, "nvidia-smi", "GPU", "MIG", line):
        gpus.ensure(Smi(tmp_path, f"  {line} \n"), True, [])


def test_a_driver_without_its_directory_in_sysfs_is_an_error(tmp_path):
    node = Smi(tmp_path, f"{FIRST}, Disabled, Disabled\n")
    (tmp_path / "sys/module/nvidia/version").unlink()
    (tmp_path / "sys/module/nvidia").rmdir()
    with raises(HostError, "/sys/module/nvidia", "No such file or directory"):
        gpus.ensure(node, False, [1000, 1980])

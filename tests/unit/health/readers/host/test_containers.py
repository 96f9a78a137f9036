# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A node whose containers cannot start has a fault; one without the command has nothing to measure."""

from __future__ import annotations

import pytest
from health_nodes import failed, node

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Expected
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.host.containers import COMMAND, read
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import Ran

EXPECTED = Expected("gpu01")


def reading(root, ran):
    program = root / COMMAND.lstrip("/")
    program.parent.mkdir(parents=True, exist_ok=True)
    program.touch()
    return read(node(root, EXPECTED, {COMMAND: ran}))


@pytest.mark.parametrize(
    ("status", "value"), [(0, False), (1, True), (127, None), (-9, None)], ids=["can", "cannot", "missing", "killed"]
)
def test_the_command_says_whether_containers_can_start(tmp_path, status, value):
    made = reading(tmp_path, Ran(status, "crun is not installed\n", ""))
    assert [(each.check, each.value) for each in made.measurements] == [("container_cannot_start", value)]


def test_a_node_that_cannot_has_a_fault(tmp_path):
    assert failed(reading(tmp_path, Ran(1, "crun is not installed\n", "")), expected=EXPECTED) == {
        "container_cannot_start": [""]
    }


def test_a_node_without_the_command_has_nothing_to_measure(tmp_path):
    assert read(node(tmp_path, EXPECTED, {})).measurements == ()

# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The software that follows from the node's own PCI functions, and what they cannot use."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_nodes import Node
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software import plan, request
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software.machine import SoftwareDevices, observe
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import RequestError


@pytest.mark.parametrize(
    ("asked", "devices", "fabric"),
    [
        ("auto", SoftwareDevices(gpus=8, management=("0000:a1:00.0",)), "nvlink5"),
        # A virtual machine that serves the board for others, and one with a part of the board.
        ("auto", SoftwareDevices(management=("0000:a1:00.0",)), "nvlink5"),
        ("auto", SoftwareDevices(gpus=4), "none"),
        ("nvlink5", SoftwareDevices(gpus=8, unknown=("0000:a1:00.0",)), "nvlink5"),
        ("auto", SoftwareDevices(nvswitches=4), "nvswitch"),
    ],
)
def test_the_fabric_follows_from_the_functions_of_the_board(tmp_path, asked, devices, fabric):
    machine = replace(observe(Node(tmp_path), False), devices=devices)
    made = plan.make(request.read({"fabric": asked}), machine)
    assert made.fabric == fabric
    assert ("nvlsm" in {package.name for package in made.packages}) == (fabric == "nvlink5")


@pytest.mark.parametrize(
    ("system", "settings", "change", "refusals"),
    [
        (
            "ubuntu2404",
            {"modules": "precompiled"},
            {"devices": SoftwareDevices(gpus=8, management=("0000:a1:00.0",))},
            [Mentions("NVLink", "5", "gpu_node_modules")],
        ),
        (
            "debian12",
            {},
            {"devices": SoftwareDevices()},
            [Mentions("NVIDIA", "GPU")],
        ),
        (
            "debian12",
            {},
            {"devices": SoftwareDevices(gpus=2, old_gpus=("0000:01:00.0",))},
            [Mentions("595.91.07", "GPUs", "0000:01:00.0")],
        ),
        (
            "debian12",
            {"fabric": "nvlink5"},
            {"devices": SoftwareDevices(gpus=8, nvswitches=4)},
            [Mentions("NVSwitch", "NVLink", "5", "gpu_node_fabric")],
        ),
        (
            "debian12",
            {"fabric": "nvswitch"},
            {"devices": SoftwareDevices(gpus=8, management=("0000:a1:00.0",))},
            [Mentions("0000:a1:00.0", "NVSwitches", "NVLink", "5", "gpu_node_fabric")],
        ),
        (
            "debian12",
            {},
            {"devices": SoftwareDevices(gpus=8, unknown=("0000:a1:00.0",))},
            [Mentions("0000:a1:00.0", "NVSwitches", "VPD", "gpu_node_fabric")],
        ),
    ],
)
def test_what_its_functions_cannot_use_is_refused(tmp_path, system, settings, change, refusals):
    machine = replace(observe(Node(tmp_path, system), False), **change)
    with pytest.raises(RequestError) as error:
        plan.make(request.read(settings), machine)
    assert [refusal for refusal in refusals if str(error.value) != refusal] == []

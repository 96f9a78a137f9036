# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from pathlib import Path

from scale_outputs import nodes, wanted

from ansible_collections.sailloft.fleet.plugins.module_utils.storage_scale import objects, plan

EXPECTED = Path(__file__).parent / "expected"
NATIVE = objects.ContainerNative(
    "data-management", {"scale": "client"}, {"storage.example": "gui.storage.example"}, "gui", "csi"
)


def test_the_files_are_those_expected():
    fleet = {**nodes("n1", "n3"), **nodes("n2", devices=3)}
    assert plan.inventory(wanted(), fleet) == (EXPECTED / "scale.json").read_text()
    assert objects.objects(wanted(), NATIVE) == (EXPECTED / "scale-objects.json").read_text()


def test_no_secret_is_in_the_files():
    assert "assword" not in plan.inventory(wanted(), nodes()) + objects.objects(wanted(), NATIVE)

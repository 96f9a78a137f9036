# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""fleet_node_info reads health and image in one call; neither hides the other."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.health import state
from ansible_collections.sailloft.fleet.plugins.module_utils.health.latch import Condition
from ansible_collections.sailloft.fleet.plugins.module_utils.health.state import Round, State
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import node_state
from ansible_collections.sailloft.fleet.plugins.modules import fleet_node_info


@pytest.fixture
def healthy(tmp_path):
    state.save(State("gpu-1", Round(7, state.moment(), 0.4, 60.0), Condition()), str(tmp_path))
    return {"state_dir": str(tmp_path)}


def test_the_health_and_the_image_of_a_node(call, healthy, monkeypatch):
    monkeypatch.setattr(node_state, "read_report", lambda subject: ({"image": "a" * 64}, ""))
    result = call(fleet_node_info, healthy)
    assert (result["image"], result["health"]["error"], result["health"]["values"]) == ("a" * 64, "", {})


def test_a_node_without_state_and_image_says_why(call, tmp_path, monkeypatch):
    monkeypatch.setattr(node_state, "read_report", lambda subject: (None, "no boot.json"))
    result = call(fleet_node_info, {"state_dir": str(tmp_path)})
    assert (result["image"], result["reason"]) == (None, "no boot.json")
    assert str(tmp_path) in result["health"]["error"]


def test_a_damaged_report_does_not_hide_the_health(call, healthy, monkeypatch):
    def damaged(subject):
        raise ImageError("boot.json is damaged", "boot again", subject=subject)

    monkeypatch.setattr(node_state, "read_report", damaged)
    result = call(fleet_node_info, healthy)
    assert "image" not in result
    assert "damaged" in result["reason"]
    assert result["health"]["error"] == ""

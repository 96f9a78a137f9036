# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The entries of ConfigDB for one port."""

from __future__ import annotations

from dataclasses import replace

from switches import switch

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Queue
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.parts.sonic_wanted import wanted_port

QOS = switch("sonic", ["Ethernet0"]).ports["Ethernet0"]


def test_references_have_brackets_only_for_old_images():
    assert wanted_port(QOS).queues[6] == {"scheduler": "SAILLOFT_STRICT"}
    assert wanted_port(QOS, True).queues[6] == {"scheduler": "[SCHEDULER|SAILLOFT_STRICT]"}


def test_headroom_is_in_the_pool_unless_the_pool_has_none():
    sizes = [
        next(entry["size"] for (table, _name), entry in of.shared.items() if table == "BUFFER_PROFILE")
        for of in (wanted_port(QOS), wanted_port(QOS, False, False))
    ]
    assert sizes == ["19456", "58368"]


def test_a_queue_has_the_scheduler_of_its_share():
    queues = (Queue(False, 7), *QOS.queues[1:3], Queue(False, None), *QOS.queues[4:])
    wanted = wanted_port(replace(QOS, queues=queues))
    assert wanted.queues[0] == {"scheduler": "SAILLOFT_DWRR_7"}
    assert "scheduler" not in wanted.queues.get(3, {})
    assert wanted.shared["SCHEDULER", "SAILLOFT_DWRR_7"] == {"type": "DWRR", "weight": "7"}
    assert wanted.shared["SCHEDULER", "SAILLOFT_STRICT"] == {"type": "STRICT"}

# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Configurations and policies for which no patch is made."""

from __future__ import annotations

import pytest
from messages import raises
from patched_sonic import patch
from refusals import refuses
from sonic_configs import PORTS, default_config
from switches import switch

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Queue
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import sonic

LACKING = [
    (("PORT", "Ethernet8"), "leaf1: PORT|Ethernet8: the switch has no such port"),
    (("BUFFER_POOL", "ingress_lossless_pool"), "leaf1: BUFFER_POOL|ingress_lossless_pool: headroom needs this pool"),
    (("BUFFER_PROFILE", "ingress_lossy_profile"), "leaf1: BUFFER_PROFILE|ingress_lossy_profile: the policy needs"),
    (("BUFFER_PROFILE", "egress_lossless_profile"), "leaf1: BUFFER_PROFILE|egress_lossless_profile: lossless"),
    (("BUFFER_PROFILE", "egress_lossy_profile"), "leaf1: BUFFER_PROFILE|egress_lossy_profile: neither q_lossy_profile"),
]


@pytest.mark.parametrize(("path", "message"), LACKING)
def test_a_missing_object_of_the_image_is_named_with_a_remedy(path, message):
    config = default_config()
    del config[path[0]][path[1]]
    del config["BUFFER_QUEUE"]
    with pytest.raises(FabricError) as refused:
        patch(config, switch("sonic", list(PORTS)))
    assert message in str(refused.value)
    assert refused.value.remedy


def test_settings_that_sonic_cannot_represent_are_refused():
    qos = switch("sonic", list(PORTS)).ports["Ethernet0"]
    queues = (Queue(False, 10), Queue(False, 20), *qos.queues[2:])  # 80% together with the 50% of queue 3
    with refuses("leaf1: Ethernet0", "SONiC", "queues"):
        patch(default_config(), switch("sonic", list(PORTS), queues=queues))


def test_a_patch_whose_result_could_not_be_read_is_refused():
    config = default_config()
    del config["BUFFER_PROFILE"]["pg_lossless_100000_5m_profile"]  # group 4, which no class uses, refers to it
    with raises(FabricError, "leaf1", "BUFFER_PG|Ethernet0|4", "profile"):
        patch(config, switch("sonic", list(PORTS)))


def test_a_pause_without_headroom_is_refused():
    with refuses("leaf1: Ethernet0", "priority 3", "headroom"):
        patch(default_config(), switch("sonic", list(PORTS), headroom=(None,) * 8))


def test_a_static_pool_is_refused():
    config = default_config()
    config["BUFFER_POOL"]["ingress_lossless_pool"]["mode"] = "static"
    with raises(FabricError, "BUFFER_POOL|ingress_lossless_pool", "'static'", "alpha", "dynamic"):
        patch(config, switch("sonic", list(PORTS)))


@pytest.mark.parametrize("text", ["", "[]", '{"QUEUE": []}', '{"QUEUE": {"Ethernet0|3": "x"}}'])
def test_text_that_is_not_a_configuration_is_refused(text):
    with pytest.raises(FabricError, match="leaf1: "):
        sonic.remediation(text, switch("sonic", list(PORTS)))

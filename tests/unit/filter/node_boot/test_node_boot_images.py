# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The image of each node, by its pin or by what its channel names on all boot servers."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.sailloft.fleet.plugins.filter.node_boot_images import node_boot_images

OLD, NEW = "a" * 64, "b" * 64
HOSTVARS = {
    "bm01": {},
    "bm02": {"node_boot_image": {"channel": "lab"}, "node_boot_secure_boot": True},
    "bm03": {"node_boot_image": {"digest": NEW}},
}


def store(**channels):
    return {"channels": [{"name": name, "digest": digest} for name, digest in channels.items()]}


def test_a_pin_counts_or_what_the_channel_names():
    rows = node_boot_images(["bm03", "bm01", "bm02"], HOSTVARS, [store(stable=OLD, lab=NEW), store(stable=OLD)])
    assert rows == {
        "bm03": {"image": NEW, "channel": "", "measured": False},
        "bm01": {"image": OLD, "channel": "stable", "measured": False},
        "bm02": {"image": NEW, "channel": "lab", "measured": True},
    }
    assert list(rows) == ["bm03", "bm01", "bm02"]


@pytest.mark.parametrize("stores", [[], [store(lab=OLD)], [store(stable=OLD), store(stable=NEW)]])
def test_servers_that_do_not_agree_on_a_channel_are_refused(stores):
    with pytest.raises(AnsibleFilterError, match="bm01: the channel stable names"):
        node_boot_images(["bm01"], HOSTVARS, stores)


def test_a_rollout_names_one_image_for_all():
    rows = node_boot_images(["bm01", "bm02"], HOSTVARS, [], NEW)
    assert {name: (row["image"], row["channel"]) for name, row in rows.items()} == dict.fromkeys(rows, (NEW, ""))

# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The sentence about a failed copy to a boot server."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.filter.rsync_failure import FilterModule

FULL = 'rsync: write failed on "/srv": No space left on device (28)'


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (
            {"rc": 11, "msg": FULL},
            "no space is left where /srv is; free some, or remove old images with collect_images.yml",
        ),
        (
            {"rc": 30, "msg": FULL},
            "no space is left where /srv is; free some, or remove old images with collect_images.yml",
        ),
        (
            {"rc": 30, "msg": "timeout"},
            "it accepted no data for a minute, or did not receive all data within an hour; "
            "check its network and its disk",
        ),
        (
            {"rc": 255, "msg": "ssh:  no\nroute"},
            "it is not reachable by ssh from the build host: ssh: no route; correct its connection or its host key",
        ),
        ({"rc": 12, "msg": "protocol\n error"}, "rsync failed: protocol error; correct that"),
        ({"rc": 1}, "rsync failed: ; correct that"),
    ],
)
def test_the_sentence_has_cause_and_remedy(result, sentence):
    told = FilterModule().filters()["rsync_failure"](result, "boot1", "/srv")
    assert told == f"boot1: {sentence}, and run again: complete files are kept"

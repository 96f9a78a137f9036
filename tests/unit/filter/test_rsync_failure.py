# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The sentence about a failed copy to a boot server."""

from __future__ import annotations

import pytest
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.filter.rsync_failure import FilterModule

FULL = 'rsync: write failed on "/srv": No space left on device (28)'


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (
            {"rc": 11, "msg": FULL},
            Mentions("/srv", "collect_images.yml"),
        ),
        (
            {"rc": 30, "msg": FULL},
            Mentions("/srv", "collect_images.yml"),
        ),
        (
            {"rc": 30, "msg": "timeout"},
            Mentions("minute"),
        ),
        (
            {"rc": 255, "msg": "ssh:  no\nroute"},
            Mentions("ssh"),
        ),
        ({"rc": 12, "msg": "protocol\n error"}, Mentions("rsync")),
        ({"rc": 1}, Mentions("rsync")),
    ],
)
def test_the_sentence_has_cause_and_remedy(result, sentence):
    told = FilterModule().filters()["rsync_failure"](result, "boot1", "/srv")
    assert told == Mentions("boot1", sentence)

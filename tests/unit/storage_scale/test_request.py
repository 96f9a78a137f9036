# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
import scale_outputs as printed
from messages import Mentions
from scale_outputs import wanted

from ansible_collections.sailloft.fleet.plugins.module_utils.storage_scale.request import ScaleError


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"cluster": "a b"}, Mentions("cluster")),
        ({"cluster": "$(id)"}, Mentions("cluster")),
        ({"file_systems": [{**printed.REQUEST["file_systems"][0], "mount": "/a;b"}]}, Mentions("mount")),
        ({"file_systems": printed.REQUEST["file_systems"] * 2}, Mentions("fs1")),
        ({"caches": [{**printed.REQUEST["caches"][0], "endpoint": "s3"}]}, Mentions("endpoint")),
        ({"caches": [{**printed.REQUEST["caches"][0], "bucket": "a'b"}]}, Mentions("bucket")),
        ({"caches": [{**printed.REQUEST["caches"][0], "mode": "rw"}]}, Mentions("mode")),
        ({"caches": printed.REQUEST["caches"] * 2}, Mentions("granite")),
        ({"rails": [-1]}, Mentions("rails")),
    ],
)
def test_a_request_that_ibm_s_roles_would_put_into_a_shell_or_twice_is_refused(changes, why):
    with pytest.raises(ScaleError) as error:
        wanted(**changes)
    assert str(error.value) == why

# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The level of kernel lockdown, and its explanation."""

from __future__ import annotations

import pytest
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import lockdown


@pytest.mark.parametrize(
    ("text", "level", "forbids", "cause"),
    [
        (
            None,
            None,
            False,
            Mentions("PCI", "EPERM", "/sys/kernel/security/lockdown"),
        ),
        (
            "[none] integrity confidentiality",
            "none",
            False,
            Mentions("PCI", "EPERM"),
        ),
        (
            "none integrity [confidentiality]",
            "confidentiality",
            True,
            Mentions("PCI", "confidentiality"),
        ),
    ],
)
def test_the_level_of_lockdown_is_read_and_explained(server, text, level, forbids, cause):
    if text:
        server.put(lockdown.FILE, text)
    assert lockdown.level(server) == level
    assert lockdown.forbids_config_writes(level) is forbids
    assert lockdown.cause(level) == cause

# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from gpu_nodes import FINGERPRINT, KEY

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software import openpgp


def test_the_fingerprint_is_the_one_that_gpg_shows():
    assert openpgp.fingerprints(KEY) == [FINGERPRINT]
    assert openpgp.fingerprints(f"said before\n{KEY}\n{KEY}") == [FINGERPRINT, FINGERPRINT]


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("", "no armored public key"),
        (KEY.replace("PUBLIC", "PRIVATE"), "no armored public key"),
        (KEY.replace("mDME", "mDMF"), "checksum is wrong"),
        (KEY.replace("=W6oG", "=W6oH"), "checksum is wrong"),
        (KEY.replace("=W6oG\n", "").replace("AOuy", "****"), "no armored public key"),
        (KEY.replace("=W6oG\n", "").replace("mDME", "mP8E"), "ends within a packet|without length|no packet"),
    ],
)
def test_what_is_no_whole_key_is_refused(key, why):
    with pytest.raises(openpgp.KeyFormatError, match=why):
        openpgp.fingerprints(key)

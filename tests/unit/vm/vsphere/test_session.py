# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Requests to vCenter. Those that reach the simulated one are in test_converge.py."""

from __future__ import annotations

import pytest
from pyVmomi import vim

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.session import Session


def test_a_session_that_is_refused_again_right_after_its_login_is_an_error():
    """A vCenter that refuses every session must not be asked for ever."""
    asked, logins = [], []
    session = Session.__new__(Session)
    session._connect = lambda: logins.append(1)

    def request():
        asked.append(1)
        raise vim.fault.NotAuthenticated()

    with pytest.raises(DomainError, match="power on gpu01: ") as error:
        session.call("power on gpu01", request, "gpu01")
    assert "the session has expired" in str(error.value) + str(error.value.__dict__)
    assert (len(asked), len(logins)) == (2, 1)

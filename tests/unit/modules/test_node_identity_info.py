# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The module node_identity_info with TPM tools that are scripts, and the report that a node's unit writes."""

from __future__ import annotations

import base64
import hashlib

import pytest
from ansible.module_utils import basic
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.identity import identity
from ansible_collections.sailloft.fleet.plugins.modules import node_identity_info


@pytest.fixture
def report(tmp_path, monkeypatch):
    """The path of the report."""
    place = tmp_path / "identity.json"
    monkeypatch.setattr(node_identity_info, "REPORT", str(place))
    return place


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (None, {"opened": None, "digest": None, "reason": None}),
        ('{"opened": true, "digest": "d1", "reason": ""}', {"opened": True, "digest": "d1", "reason": None}),
        ('{"opened": false, "digest": "d1", "reason": "no"}', {"opened": False, "digest": None, "reason": "no"}),
    ],
)
def test_the_report_is_read(report, text, read):
    if text is not None:
        report.write_text(text)
    assert node_identity_info.read_report() == read


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting value: line 1 column 1 (char 0)"),
        ('{"opened": true}', "'digest'"),
        ("[]", "list indices must be integers or slices, not str"),
    ],
)
def test_a_damaged_report_is_refused(report, text, why):
    report.write_text(text)
    with raises(ImageError, report, why):
        node_identity_info.read_report()


EK = (len(identity.EK_TEMPLATE) + 256).to_bytes(2, "big") + identity.EK_TEMPLATE + b"\xa7" * 256


@pytest.fixture
def tpm(tool, tmp_path):
    """Return a function that sets the file of the TPM's certificate; the tools log their arguments."""
    (tmp_path / "ek").write_bytes(EK)
    log = f'echo "$(basename "$0") $TPM2TOOLS_TCTI $*" >> {tmp_path}/log'
    tool("tpm2_createek", f"{log}\ncp {tmp_path}/ek ek.pub")
    tool("tpm2_flushcontext", log)
    tool("tpm2_createprimary", log)
    tool("tpm2_readpublic", f"{log}\nprintf ak >ak.pub")

    def put(data):
        (tmp_path / "stored").write_bytes(data)
        tool("tpm2_nvread", f"{log}\ncp {tmp_path}/stored certificate")

    tool("tpm2_nvread", f"{log}\nexit 1")
    return put


@pytest.mark.parametrize("check_mode", [False, True])
def test_the_key_of_a_tpm_without_certificate_is_returned_unchecked(call, tpm, report, tmp_path, check_mode):
    assert call(node_identity_info, {"tcti": "swtpm:port=1"}, check_mode) == {
        "changed": False,
        "ek": base64.b64encode(EK).decode(),
        "ek_digest": hashlib.sha256(EK).hexdigest(),
        "ak": base64.b64encode(b"ak").decode(),
        "quote": None,
        "certificate": None,
        "certificate_is_of_ek": None,
        "opened": None,
        "digest": None,
        "reason": None,
    }
    calls = (tmp_path / "log").read_text().splitlines()
    # Without the kernel's resource manager, each object stays in the TPM until it is removed.
    assert [line.split()[0] for line in calls] == [
        *("tpm2_createek", "tpm2_flushcontext", "tpm2_createprimary", "tpm2_flushcontext"),
        *("tpm2_readpublic", "tpm2_flushcontext", "tpm2_nvread"),
    ]
    assert {line.split()[1] for line in calls} == {"swtpm:port=1"}


@pytest.mark.parametrize("is_of_ek", [True, False])
def test_the_certificate_of_a_tpm_is_compared_with_its_key(call, tpm, report, monkeypatch, is_of_ek):
    data = b"\x30\x03\x02\x01\x01"
    tpm(data)
    monkeypatch.setattr(identity, "certificate_of", lambda stored: stored)
    monkeypatch.setattr(identity, "certificate_is_of", lambda given, ek: (given, ek) == (data, EK) and is_of_ek)
    result = call(node_identity_info, {})
    assert result["certificate"] == base64.b64encode(data).decode()
    assert result["certificate_is_of_ek"] is is_of_ek


def test_a_tpm_without_an_answer_is_refused(call, tool):
    tool("tpm2_createek", "echo no TPM >&2; exit 1")
    assert call(node_identity_info, {})["msg"] == (Mentions("TPM", "device:/dev/tpmrm0"))


def test_a_missing_tool_is_reported_with_its_package(call, monkeypatch):
    monkeypatch.setattr(basic.AnsibleModule, "get_bin_path", lambda _self, _name: None)
    message = "tool tpm2_createek: not found on this node; install tpm2-tools"
    assert call(node_identity_info, {})["msg"] == message

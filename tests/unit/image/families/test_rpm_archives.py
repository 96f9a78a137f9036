# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Archives of RPM distributions: requests, messages of dnf, and its environment."""

from __future__ import annotations

import pytest
from image_samples import refusal

from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Archive
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families import rpm

PIN = "a" * 64


def archive(**data):
    return Settings(ImageError, "archives[0]", {"url": "http://a/debian/", **data})


def test_an_archive_of_rpm_is_read_or_refused():
    assert rpm.read_archive(archive(keyring="/k")) == Archive("http://a/debian", (), (), "/k")
    pinned = Archive("http://a/debian", release_sha256={"repomd": PIN})
    assert rpm.read_archive(archive(release_sha256={"repomd": PIN})) == pinned
    for data in ({"suites": ["9"]}, {"components": ["main"]}):
        assert "suites and components" in refusal(rpm.read_archive, archive(keyring="/k", **data)).cause
    assert "repomd" in refusal(rpm.read_archive, archive()).remedy


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("", "no output"),
        ("a\n\n b \nc\nd\n", "b; c; d"),
        ("a\n", "a"),
        ("Error: x\n1\nerror: y\n2\n3\n4\n5\n6\n7\n", "error: y; 2; 3; 4; 5; 6"),
        ("x" * 700, "x" * 600),
    ],
)
def test_the_end_of_the_output_of_dnf_is_shown(output, told):
    assert rpm.last_lines(output) == told


def test_the_environment_of_dnf_has_only_proxies_and_constant_values(monkeypatch):
    for name in ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "SOURCE_DATE_EPOCH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.setenv("NO_PROXY", "lab")
    always = {"PATH": "/bin", "NO_PROXY": "lab", "HOME": "/h", "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
    assert rpm.dnf_environment("/h") == {**always, "SOURCE_DATE_EPOCH": "1"}
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "9")
    assert rpm.dnf_environment("/h") == {**always, "SOURCE_DATE_EPOCH": "9"}

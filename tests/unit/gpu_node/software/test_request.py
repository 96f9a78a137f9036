# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from gpu_nodes import ARCHIVE, FINGERPRINT, KEY
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software import request
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import RequestError


@pytest.mark.parametrize("key", [KEY, KEY.rstrip("\n")])
def test_an_archives_key_ends_with_a_newline(key):
    (archive,) = request.read({"repositories": [{**ARCHIVE, "key": key}]}).repositories
    assert archive.key == KEY.rstrip("\n") + "\n"


def refused(data):
    with pytest.raises(RequestError) as error:
        request.read(data)
    return str(error.value)


def test_the_defaults_are_the_recommended_release_with_dkms_and_dcgm():
    assert request.read({}) == request.SoftwareRequest(
        driver="595.91.07",
        modules="dkms",
        gpudirect="dmabuf",
        rdma="inbox",
        fabric="auto",
        dcgm=True,
        storage="none",
        cufile={},
        extra_packages=(),
        rails_on_one_subnet=False,
        signing=False,
        repositories=(),
    )


@pytest.mark.parametrize("missing", ["name", "url", "key", "fingerprints"])
def test_an_archive_without_a_required_setting_is_refused(missing):
    archive = {name: value for name, value in ARCHIVE.items() if name != missing}
    assert refused({"repositories": [archive]}) == f"gpu_node.repositories[0]: {missing} is missing; set it"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"nam": "x"}, Mentions("nam", "name")),
        ({"name": "A"}, Mentions("lower-case")),
        ({"name": "-a"}, Mentions("-a", "lower-case")),
        ({"name": "a" * 64}, Mentions("a" * 64, "lower-case")),
        ({"url": "ftp://a"}, Mentions("ftp://a", "URL")),
        ({"suite": "a b"}, Mentions("sources.list(5")),
        ({"components": ["main", "-x"]}, Mentions("-x", "sources.list(5")),
        (
            {"suite": "noble"},
            Mentions("/", "components"),
        ),
        (
            {"components": ["main"]},
            Mentions("/", "components"),
        ),
        (
            {"key": "x"},
            Mentions("armored"),
        ),
        (
            {"fingerprints": ["A" * 40]},
            Mentions(FINGERPRINT),
        ),
    ],
)
def test_an_invalid_archive_is_refused_with_the_cause_and_a_remedy(change, why):
    assert refused({"repositories": [ARCHIVE, {**ARCHIVE, **change}]}) == why


@pytest.mark.parametrize(
    "change",
    [
        {"name": "a" * 63},
        {"url": "http://a"},
        {"url": "file:/mirror"},
        {"url": "file:///mirror"},
        {"suite": "noble", "components": ["main", "non-free_x+1"]},
        {"suite": "x86_64/"},
    ],
)
def test_a_valid_archive_is_read_as_it_is(change):
    (archive,) = request.read({"repositories": [{**ARCHIVE, **change}]}).repositories
    wanted = {"suite": "/", "components": (), **ARCHIVE, **change}
    assert archive == request.Repository(
        wanted["name"], wanted["url"], KEY, wanted["suite"], tuple(wanted["components"])
    )


def test_an_unknown_driver_or_package_is_refused_with_the_cause_and_a_remedy():
    assert refused({"driver": "595"}) == (Mentions("gpu_node", "595", "releases"))
    for name in ("-y", "a=1", "a b"):
        assert refused({"extra_packages": ["nvtop", name]}) == (Mentions("gpu_node", "extra_packages", name))
    assert request.read({"extra_packages": ["nvtop", "libc++1", "a_b.c"]}).extra_packages == (
        "nvtop",
        "libc++1",
        "a_b.c",
    )

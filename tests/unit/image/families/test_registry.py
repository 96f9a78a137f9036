# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each family of distributions fulfils the contract, and each distribution is a row of the table."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from imported_files import imported_files

from ansible_collections.sailloft.fleet.plugins.module_utils.image.families import debian, registry, rpm
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request import spec

FAMILIES = sorted(set(registry.DISTRIBUTIONS.values()), key=lambda family: family.__name__)
CONTRACT = re.findall(r"^``(\w+)``  ", registry.__doc__, re.MULTILINE)
ROOT = Path(__file__).parents[4]


def test_each_distribution_has_its_family():
    assert dict(registry.DISTRIBUTIONS) == {"debian": debian, "ubuntu": debian, "rhel": rpm, "rocky": rpm}
    assert registry.family_of("rocky") is rpm


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__.rpartition(".")[2])
def test_a_family_has_all_names_of_the_contract(family):
    assert len(CONTRACT) >= 16
    assert [name for name in CONTRACT if not hasattr(family, name)] == []
    assert all(isinstance(getattr(family, name), tuple) for name in ("ARCHITECTURES", "BUILD_PACKAGES", "TOOLS"))


@pytest.mark.parametrize("name", [name for name in CONTRACT if name.islower()])
def test_all_families_take_the_same_arguments(name):
    assert len({str(inspect.signature(getattr(family, name))) for family in FAMILIES}) == 1


def test_only_the_registry_imports_the_families():
    """The builder uses the registry, so a new family changes only files in the directory of the families."""
    imported = {
        f"{path.name}: {file.stem}"
        for path in (ROOT / "plugins").rglob("*.py")
        if path.parent.name != "families"
        for file in imported_files(path)
        if file.parent.name == "families" and file.stem != "registry"
    }
    assert imported == set()


def test_a_new_distribution_of_a_known_family_needs_only_one_row(monkeypatch):
    monkeypatch.setattr(registry, "DISTRIBUTIONS", {**registry.DISTRIBUTIONS, "alma": rpm})
    monkeypatch.setattr(
        "ansible_collections.sailloft.fleet.plugins.module_utils.image.request.spec.DISTRIBUTIONS",
        registry.DISTRIBUTIONS,
    )
    archive = {"url": "https://repo.almalinux.org/9", "keyring": "/keys/alma"}
    base = {"distribution": "alma", "suite": "9", "architecture": "x86_64", "archives": [archive], "packages": ["bash"]}
    image = spec.read_images({"node": {"layer": "base"}}, {"base": base})["node"]
    assert image.layers[0].distribution == "alma"


def test_the_first_stages_programs_come_from_the_archives_or_from_the_build_host(tmp_path):
    assert debian.first_stage_digest() == ""
    assert rpm.first_stage_tree(tmp_path, None, {}, None, None) == Path("/")
    assert rpm.first_stage_caches(None, {}) == {}

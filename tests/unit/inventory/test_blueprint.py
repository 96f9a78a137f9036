# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The inventory plugin, called by ansible-inventory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import sites

ANSIBLE_INVENTORY = Path(sys.executable).parent / "ansible-inventory"


@pytest.fixture
def listed(tmp_path):
    """A function that lists the inventory in a directory."""

    def run(*arguments, folder=tmp_path, **environment):
        done = subprocess.run(
            [ANSIBLE_INVENTORY, "-i", str(folder), *(arguments or ["--list"])],
            cwd=sites.PROJECT,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true", "COLUMNS": "1000", **environment},
        )
        if done.returncode:
            raise ValueError(done.stderr)
        # Ansible wraps strings in which it does not trust templates.
        return json.loads(done.stdout, object_hook=lambda each: each.get("__ansible_unsafe", each))

    (tmp_path / "blueprint.yml").write_text(sites.TEXT, encoding="utf-8")
    return run


def test_host_vars_and_group_vars_override_the_plugins_variables(listed, tmp_path):
    (tmp_path / "host_vars").mkdir()
    (tmp_path / "host_vars/gpu02.yml").write_text("ansible_host: 192.0.2.7\nnode_boot_mac: '52:54:00:aa:bb:01'\n")
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/node.yml").write_text("ansible_user: admin\n")
    text = sites.TEXT.replace("{ansible_user: root}", "{ansible_user: root, bmc: '{{ site_addresses.management }}'}")
    text += "compose: {label: inventory_hostname ~ '@' ~ site_rack}\n"
    text += "keyed_groups: [{key: site_rack, separator: ''}]\n"
    (tmp_path / "blueprint.yml").write_text(text, encoding="utf-8")
    data = listed()
    assert data["nodes"]["children"] == ["node"]
    assert data["node"]["hosts"] == ["gpu01", "gpu02", "gpu03", "gpu04"]
    assert data["rack_2"]["hosts"] == ["gpu03", "gpu04", "leaf2-1", "leaf2-2"]
    variables = data["_meta"]["hostvars"]
    assert variables["gpu02"]["ansible_host"] == "192.0.2.7"
    assert variables["gpu02"]["node_boot_mac"] == "52:54:00:aa:bb:01"
    assert variables["gpu01"]["ansible_host"] == "10.0.0.11"
    assert variables["gpu01"]["label"] == "gpu01@rack-1"
    # group_vars beside the inventory override the plugin's variables.
    assert variables["gpu01"]["ansible_user"] == "admin"
    assert variables["gpu01"]["site_blueprint"] == str(tmp_path / "blueprint.yml")
    done = subprocess.run(
        [ANSIBLE_INVENTORY.parent / "ansible", "gpu01", "-i", str(tmp_path), "-m", "debug", "-a", "msg={{ bmc }}"],
        cwd=sites.PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "10.0.0.11" in done.stdout


def test_an_error_names_file_line_and_rule(listed, tmp_path):
    (tmp_path / "blueprint.yml").write_text(sites.TEXT.replace("count: 2,", "count: 0,", 1), encoding="utf-8")
    with pytest.raises(ValueError, match="is not valid") as caught:
        listed()
    assert f"{tmp_path}/blueprint.yml:6: blocks.rack.count: 0 is not valid; use a whole number from 1" in str(
        caught.value
    )


@pytest.mark.long
def test_a_file_of_another_inventory_plugin_is_not_parsed(listed, tmp_path):
    (tmp_path / "more.yml").write_text("all: {hosts: {other: {note: 'plugin: sailloft.fleet.blueprint'}}}\n")
    assert "other" in listed()["_meta"]["hostvars"]


@pytest.mark.long
def test_the_cache_is_used_until_the_file_changes(listed, tmp_path):
    """A second run reads hosts from the cache, and notices a change of the file."""
    cache = tmp_path / "cache"
    text = sites.TEXT + f"cache: true\ncache_plugin: ansible.builtin.jsonfile\ncache_connection: {cache}\n"
    (tmp_path / "site").mkdir()
    file = tmp_path / "site/blueprint.yml"
    file.write_text(text, encoding="utf-8")
    first = listed(folder=tmp_path / "site")
    (kept,) = cache.iterdir()
    kept.write_text(kept.read_text().replace("10.0.0.11", "10.0.0.99"))
    second = listed(folder=tmp_path / "site")
    assert first["_meta"]["hostvars"]["gpu01"]["ansible_host"] == "10.0.0.11"
    assert second["_meta"]["hostvars"]["gpu01"]["ansible_host"] == "10.0.0.99"
    file.write_text(text.replace("management: 11,", "management: 21,"), encoding="utf-8")
    assert listed(folder=tmp_path / "site")["_meta"]["hostvars"]["gpu01"]["ansible_host"] == "10.0.0.21"


@pytest.mark.long
@pytest.mark.parametrize(("name", "hosts"), [("small", 9), ("vela", 556), ("blue_vela", 962)])
def test_each_example_has_its_number_of_hosts(listed, name, hosts):
    variables = listed(folder=sites.PROJECT / "inventories" / name)["_meta"]["hostvars"]
    assert len(variables) == hosts

# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An image that the boot server does not have is named, with what to do, before a node is touched."""

from __future__ import annotations

import json

import pytest
import yaml
from playing import ansible_playbook

pytestmark = pytest.mark.fleet


def play(tmp_path, absent, prediction="file"):
    """Read the manifests, and return the status and the text; bm02's image is there unless ``absent``."""
    digests = {"bm01": "a" * 64, "bm02": "b" * 64}
    for digest in digests.values() if not absent else ["a" * 64]:
        (tmp_path / "store/images" / digest).mkdir(parents=True)
        (tmp_path / "store/images" / digest / "manifest.json").write_text("{}")
    role = {"name": "sailloft.fleet.node_boot", "tasks_from": "servers/read_manifests"}
    rows = {name: {"image": digest, "measured": name == "bm01"} for name, digest in digests.items()}
    digest_of_node = {"ansible.builtin.set_fact": {"__node_boot_images": rows}}
    read = "{{ __node_boot_predictions.results | map(attribute='content', default='') | map('b64decode') }}"
    shown = {"ansible.builtin.debug": {"msg": f"predictions: {read}"}, "run_once": True}
    tasks = [digest_of_node, {"ansible.builtin.include_role": {**role, "public": True}}, shown]
    # The host that signs has a prediction of one of the images; bm02 is not measured.
    (tmp_path / "signer/images" / ("a" * 64)).mkdir(parents=True)
    if prediction == "file":
        (tmp_path / "signer/images" / ("a" * 64) / "pcrs.json").write_text("PCR values")
    elif prediction == "unreadable":
        (tmp_path / "signer/images" / ("a" * 64) / "pcrs.json").mkdir()
    (tmp_path / "play.yml").write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    variables = {
        "ansible_connection": "local",
        "node_boot_servers": ["localhost"],
        "boot_server_store_dir": str(tmp_path / "store"),
        "node_image_store_dir": str(tmp_path / "signer"),
    }
    (tmp_path / "variables.json").write_text(json.dumps(variables))
    (tmp_path / "hosts").write_text("bm01\nbm02\n")
    status, output = ansible_playbook(
        "-i", str(tmp_path / "hosts"), "-e", f"@{tmp_path}/variables.json", str(tmp_path / "play.yml")
    )
    return status, " ".join(output.split())


@pytest.mark.parametrize("absent", [True, pytest.param(False, marks=pytest.mark.long)])
def test_an_image_that_the_boot_server_lacks_is_named_with_the_remedy(tmp_path, absent):
    status, told = play(tmp_path, absent)
    assert (status != 0) == absent
    assert (f"localhost: has no image {'b' * 64} ({tmp_path}/store/images)" in told) == absent
    assert ("playbooks/node_images.yml" in told) == absent
    assert told.count("PCR values") == (not absent)


@pytest.mark.long
@pytest.mark.parametrize("prediction", ["none", "unreadable"])
def test_a_prediction_that_cannot_be_read_is_not_taken_for_a_missing_one(tmp_path, prediction):
    status, told = play(tmp_path, False, prediction)
    assert (status != 0) == (prediction == "unreadable")
    assert (f"localhost: what boots of image {'a' * 64} measure could not be read" in told) == (status != 0)

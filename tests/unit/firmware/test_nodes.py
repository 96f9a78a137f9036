# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Firmware and BIOS settings of nodes over HTTPS, with a BMC that has the names of DMTF's mockup."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from baseline_bmc import BIOS, INVENTORY, ROOT, SETTINGS, SYSTEM, BaselineServer
from messages import Mentions
from redfish_bmc import PASSWORD

from ansible_collections.sailloft.fleet.plugins.module_utils.firmware import updates
from ansible_collections.sailloft.fleet.plugins.module_utils.firmware.baseline import BaselineError, WantedVersion, read
from ansible_collections.sailloft.fleet.plugins.module_utils.firmware.nodes import (
    BaselineLimits,
    BaselineNode,
    FirmwareOfNodes,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.firmware.state import NodeFirmware
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.bmc import BootBmc

IMAGE = b"firmware " * 200_000
SHA = hashlib.sha256(IMAGE).hexdigest()


@pytest.fixture(autouse=True)
def _quick_polls(monkeypatch):
    monkeypatch.setattr(updates, "POLL_S", 0.05)


@pytest.fixture
def start(tmp_path):
    started = []

    def call(**how):
        started.append(BaselineServer(tmp_path / f"bmc{len(started)}", **how))
        return started[-1]

    yield call
    for bmc in started:
        bmc.stop()


@pytest.fixture
def image(tmp_path):
    """Return the URL of an image that can be fetched."""
    (tmp_path / "bmc.bin").write_bytes(IMAGE)
    return f"file://{tmp_path}/bmc.bin"


def fleet(baseline, *servers, read_back_s=0.3, update_s=2.0, **account):
    """Return nodes gpu01 and so on, with this baseline of the model 3500."""
    nodes = [
        BaselineNode(f"gpu{at:02}", BootBmc(**server.account(**account)), read({"3500": baseline}, "gpu01"))
        for at, server in enumerate(servers, 1)
    ]
    return FirmwareOfNodes(nodes, "localhost", BaselineLimits(update_s, read_back_s))


def of_one(nodes):
    """Return the only node, its settings by name."""
    node = nodes["gpu01"]
    return node, {setting.name: setting for setting in node.settings}


def with_image(url, version="2.0", **more):
    """Return the baseline of BMC; its form allows no file:, which spares the tests a web server."""
    baseline = read({"3500": {"firmware": {"BMC": {"version": version, "url": "http://x/y", "sha256": SHA}}}}, "gpu01")
    (wanted,) = baseline["3500"].firmware
    object.__setattr__(wanted, "url", url)
    for name, value in more.items():
        object.__setattr__(wanted, name, value)
    return baseline


def updating(server, baseline, update_s=2.0):
    return FirmwareOfNodes(
        [BaselineNode("gpu01", BootBmc(**server.account()), baseline)], "localhost", BaselineLimits(update_s, 0.3)
    )


def test_a_node_with_its_baseline_holds_and_nothing_is_sent(start):
    bmc = start()
    baseline = {
        "bios": {"ProcTurboMode": "Enabled"},
        "firmware": {"Contoso BMC Firmware": {"version": "1.45.455b66-rev4"}},
    }
    node, settings = of_one(fleet(baseline, bmc).read())
    assert node.error == ""
    assert (node.holds, node.model, len(settings), bmc.changes) == (True, "3500", 2, [])


def test_settings_are_sent_for_the_next_restart_and_read_back_after_it(start):
    bmc = start()
    nodes = fleet({"bios": {"ProcTurboMode": "Disabled", "ProcCoreDisable": 2, "NicBoot1": "NetworkBoot"}}, bmc)
    before = nodes.read()
    assert {setting.name for setting in before["gpu01"].differing} == {"ProcTurboMode", "ProcCoreDisable"}
    node, settings = of_one(nodes.set(before, ["bios"]))
    assert [sent["Attributes"] for sent in bmc.sent] == [{"ProcTurboMode": "Disabled", "ProcCoreDisable": 2}]
    assert bmc.sent[0]["@Redfish.SettingsApplyTime"]["ApplyTime"] == "OnReset"
    assert (node.holds, settings["ProcTurboMode"].is_pending, settings["ProcTurboMode"].seen) == (
        False,
        True,
        "Enabled",
    )
    # What waits for the restart is not sent again.
    nodes.set(nodes.read(), ["bios"])
    assert len(bmc.sent) == 1
    bmc.restart()
    assert of_one(nodes.read_back(["bios"]))[0].holds


def test_a_value_that_the_next_restart_changes_does_not_hold(start):
    bmc = start()
    bmc.documents[SETTINGS]["Attributes"] = {"ProcTurboMode": "Disabled"}
    nodes = fleet({"bios": {"ProcTurboMode": "Enabled"}}, bmc)
    before = nodes.read()
    assert not before["gpu01"].holds
    assert nodes.set(before, ["bios"])["gpu01"].holds
    bmc.restart()
    assert nodes.read()["gpu01"].holds


def test_a_value_that_was_accepted_and_not_applied_is_named(start):
    bmc = start()
    bmc.forgets = {"ProcTurboMode"}
    nodes = fleet({"bios": {"ProcTurboMode": "Disabled", "NicBoot1": "Disabled"}}, bmc)
    nodes.set(nodes.read(), ["bios"])
    bmc.restart()
    node, settings = of_one(nodes.read_back(["bios"]))
    assert [setting.name for setting in node.differing] == ["ProcTurboMode"]
    assert "accepted" in settings["ProcTurboMode"].reason
    assert "SettingsFailed" in settings["ProcTurboMode"].reason


def test_nothing_is_sent_to_a_node_that_cannot_have_a_value(start):
    good, other = start(), start()
    other.documents[f"{ROOT}/Registries/bios.json"]["RegistryEntries"]["Attributes"] = [
        {"AttributeName": "ProcTurboMode", "Type": "Enumeration", "Value": [{"ValueName": "Enabled"}]}
    ]
    other.documents[SYSTEM]["BiosVersion"] = "of another registry"
    nodes = fleet({"bios": {"ProcTurboMode": "Disabled"}}, good, other)
    after = nodes.set(nodes.read(), ["bios"])
    assert (after["gpu01"].error, len(good.sent), other.sent) == ("", 1, [])
    assert "ProcTurboMode" in after["gpu02"].error
    assert not after["gpu02"].to_set(["bios"])


def test_what_is_not_to_be_set_is_not_waited_for(start):
    bmc = start()
    nodes = fleet({"bios": {"ProcTurboMode": "Disabled"}, "firmware": {"BMC": {"version": "2.0"}}}, bmc, read_back_s=60)
    before = nodes.read()["gpu01"]
    assert [setting.name for setting in before.to_set(["bios", "firmware"])] == ["ProcTurboMode"]
    assert nodes.read_back(["firmware"])["gpu01"] == before


def test_a_row_survives_its_form_in_results(start):
    node = fleet({"bios": {"ProcTurboMode": "Disabled", "NoSuch": 1}}, start()).read()["gpu01"]
    assert NodeFirmware.of(json.loads(json.dumps({**node.to_dict()}))).why_not(["bios"]) == node.why_not(["bios"])


def test_a_registry_is_read_once_for_nodes_with_the_same_bios(start):
    bmc = start()
    fetched = []
    registry = bmc.documents.pop(f"{ROOT}/Registries/bios.json")

    class Counting(dict):
        def get(self, key, default=None):
            if key.endswith("bios.json"):
                fetched.append(key)
                return registry
            return super().get(key, default)

    bmc.documents = Counting(bmc.documents)
    nodes = fleet({"bios": {"ProcTurboMode": "Disabled"}}, *[bmc] * 5).read()
    assert [len(node.differing) for node in nodes.values()] == [1] * 5
    assert len(fetched) == 1


def test_a_bmc_without_a_registry_is_noted(start):
    bmc = start()
    bmc.documents[f"{ROOT}/Registries"]["Members"].pop()
    nodes = fleet({"bios": {"ProcTurboMode": "Disabled"}}, bmc)
    assert nodes.read()["gpu01"].notes
    nodes.set(nodes.read(), ["bios"])
    assert len(bmc.sent) == 1


def test_what_is_not_known_never_holds(start):
    bmc = start()
    absent = fleet({"bios": {"NoSuch": "x"}, "firmware": {"PSU": {"version": "1"}}}, bmc).read()["gpu01"]
    assert (absent.holds, len(absent.differing), all(setting.reason for setting in absent.differing)) == (
        False,
        2,
        True,
    )
    refused = fleet({}, bmc, password="wrong").read()["gpu01"]
    assert not refused.holds
    assert "password" in refused.error
    assert PASSWORD not in repr(refused)
    bmc.documents[SYSTEM]["Model"] = "another"
    assert "another" in fleet({}, bmc).read()["gpu01"].error
    alone = FirmwareOfNodes([BaselineNode("gpu01", None, {})], "localhost", BaselineLimits(1, 1))
    assert "node_boot_bmc" in alone.read()["gpu01"].error
    bmc.documents[BIOS] = b"no JSON"
    bmc.documents[SYSTEM]["Model"] = "3500"
    assert fleet({"bios": {"A": "x"}}, bmc).read()["gpu01"].error


def test_a_number_is_no_truth(start):
    bmc = start()
    bmc.documents[BIOS]["Attributes"]["ProcCoreDisable"] = True
    assert not fleet({"bios": {"ProcCoreDisable": 1}}, bmc).read()["gpu01"].holds


def test_a_bmc_without_a_settings_resource_is_named(start):
    bmc = start()
    del bmc.documents[BIOS]["@Redfish.Settings"]
    nodes = fleet({"bios": {"ProcTurboMode": "Disabled"}}, bmc)
    assert "Settings" in nodes.set(nodes.read(), ["bios"])["gpu01"].error


@pytest.mark.parametrize("pushes", [True, False])
def test_an_image_is_brought_and_its_version_read_back(start, image, pushes):
    bmc = start(pushes=pushes)
    bmc.brings = {"BMC": "2.0"}
    nodes = updating(bmc, with_image(image))
    assert nodes.set(nodes.read(), ["bios"])["gpu01"].holds is False
    assert bmc.sent == []
    assert nodes.set(nodes.read(), ["firmware"])["gpu01"].holds
    (sent,) = bmc.sent
    if pushes:
        assert IMAGE in sent
        assert f'"Targets": ["{INVENTORY}/BMC"]'.encode() in sent
    else:
        assert (sent["ImageURI"], sent["Targets"]) == (image, [f"{INVENTORY}/BMC"])


@pytest.mark.parametrize("wrong", [{"sha256": "0" * 64}, {"url": "file:///nowhere/bmc.bin"}])
def test_an_image_that_is_not_the_one_of_a_baseline_fails_only_the_nodes_that_need_it(start, image, wrong):
    good, bad, current = start(), start(), start()
    current.documents[f"{INVENTORY}/BMC"]["Version"] = "2.0"
    good.brings = {"BMC": "2.0"}
    bad_baseline = with_image(**{"url": image, **wrong})
    nodes = FirmwareOfNodes(
        [
            BaselineNode("gpu01", BootBmc(**bad.account()), bad_baseline),
            BaselineNode("gpu02", BootBmc(**good.account()), with_image(image)),
            BaselineNode("gpu03", BootBmc(**current.account()), bad_baseline),
        ],
        "localhost",
        BaselineLimits(2.0, 0.3),
    )
    after = nodes.set(nodes.read(), ["firmware"])
    assert after["gpu01"].error == Mentions("nothing was sent", wrong.get("url", SHA))
    assert after["gpu01"].refused
    assert (after["gpu02"].holds, after["gpu03"].holds) == (True, True)
    assert (bad.sent, len(good.sent), current.sent) == ([], 1, [])


def test_an_update_that_brings_no_version_is_named_after_the_restart(start, image):
    bmc = start()
    nodes = updating(bmc, with_image(image))
    assert nodes.set(nodes.read(), ["firmware"])["gpu01"].error == ""
    _node, settings = of_one(nodes.read_back(["firmware"]))
    assert "accepted" in settings["BMC"].reason


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({"TaskState": "Exception", "TaskStatus": "Critical", "Messages": [{"Message": "image is for X"}]}, "for X"),
        ({"TaskState": "Running"}, "did not end"),
    ],
)
def test_a_task_that_fails_or_never_ends_is_named(start, image, task, said):
    bmc = start()
    bmc.task = task
    nodes = updating(bmc, with_image(image), update_s=0.3)
    assert said in nodes.set(nodes.read(), ["firmware"])["gpu01"].error


def test_a_version_without_an_image_is_compared_only(start):
    bmc = start()
    nodes = fleet({"firmware": {"BMC": {"version": "2.0"}}}, bmc)
    node = nodes.set(nodes.read(), ["firmware", "bios"])["gpu01"]
    assert (len(node.differing), bmc.sent) == (1, [])
    assert "url" in node.differing[0].reason


def test_two_firmwares_of_one_name_must_be_told_apart(start):
    bmc = start()
    bmc.documents[f"{INVENTORY}/BIOS"]["Name"] = "Contoso BMC Firmware"
    node = fleet({"firmware": {"Contoso BMC Firmware": {"version": "1"}}}, bmc).read()["gpu01"]
    assert "BIOS, BMC" in node.differing[0].reason


def test_a_slow_bmc_does_not_hide_the_others(start):
    good, slow = start(), start()
    slow.documents[BIOS] = 3.0
    nodes = fleet({"bios": {"ProcTurboMode": "Enabled"}}, good, slow, timeout_s=1).read()
    assert (nodes["gpu01"].holds, nodes["gpu02"].holds, bool(nodes["gpu02"].error)) == (True, False, True)


def test_an_image_is_checked_against_each_baseline_that_names_it(tmp_path):
    """Two models may name one URL, and only one of them what it has now; two URLs may have one wanted digest."""
    (tmp_path / "image").write_bytes(IMAGE)
    (tmp_path / "other").write_bytes(b"other")
    (tmp_path / "images").mkdir()

    def wanted(sha256, name="image"):
        return WantedVersion("BMC", "2", (tmp_path / name).as_uri(), sha256)

    images = updates.Images(str(tmp_path / "images"))
    images.fetch(wanted(SHA))
    for wrong in (wanted("0" * 64), wanted(SHA, "other"), wanted(SHA, "other")):
        with pytest.raises(BaselineError):
            images.fetch(wrong)
    images.fetch(wanted(SHA))
    assert [Path(path).read_bytes() for path in images.paths.values()] == [IMAGE]

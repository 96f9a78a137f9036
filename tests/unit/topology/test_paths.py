# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Function,
    Host,
    NumaNode,
    RootComplex,
    TopologyError,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import (
    PATH_CLASSES,
    Fidelity,
    Paths,
    fidelity,
    pairs,
    path_class,
    port_role,
)


def function(address: str, parent: str | None, root: str, kind: str = "bridge", role: str | None = None) -> Function:
    return Function(address, root, parent, 0, 0, 0, kind, role)


@pytest.fixture
def two_levels() -> Host:
    """One root port with an upper switch, which has a GPU and two lower switches; another root port; another node."""
    a, b, c = "pci0000:00", "pci0000:40", "pci0000:80"
    functions = [
        function("0000:00:01.0", None, a),
        function("0000:01:00.0", "0000:00:01.0", a),  # upper switch
        function("0000:02:00.0", "0000:01:00.0", a),
        function("0000:02:01.0", "0000:01:00.0", a),
        function("0000:02:02.0", "0000:01:00.0", a),
        function("0000:03:00.0", "0000:02:00.0", a),  # lower switch
        function("0000:04:00.0", "0000:03:00.0", a),
        function("0000:04:01.0", "0000:03:00.0", a),
        function("0000:05:00.0", "0000:04:00.0", a, "gpu"),
        function("0000:06:00.0", "0000:04:01.0", a, "nic"),
        function("0000:06:00.1", "0000:04:01.0", a, "nic"),
        function("0000:07:00.0", "0000:02:01.0", a),  # the other lower switch
        function("0000:08:00.0", "0000:07:00.0", a),
        function("0000:09:00.0", "0000:08:00.0", a, "gpu"),
        function("0000:0a:00.0", "0000:02:02.0", a, "gpu"),
        function("0000:00:02.0", None, a),
        function("0000:0b:00.0", "0000:00:02.0", a, "nic"),
        function("0000:40:00.0", None, b, "nic"),
        function("0000:80:00.0", None, c, "nic"),
    ]
    complexes = [RootComplex(a, 0, 0, 0), RootComplex(b, 0, 0x40, 0), RootComplex(c, 0, 0x80, 1)]
    return Host([NumaNode(0, [0], [[0]], 1), NumaNode(1, [1], [[1]], 1)], complexes, functions)


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        ("0000:05:00.0", "0000:05:00.0", "X"),
        ("0000:06:00.0", "0000:06:00.1", "PIX"),  # two functions of one device
        ("0000:05:00.0", "0000:06:00.0", "PIX"),  # two ports of one switch
        ("0000:05:00.0", "0000:09:00.0", "PXB"),  # two lower switches
        ("0000:05:00.0", "0000:0a:00.0", "PXB"),  # a lower switch and the upper one
        ("0000:05:00.0", "0000:0b:00.0", "PHB"),  # two root ports of one root complex
        ("0000:05:00.0", "0000:40:00.0", "NODE"),  # two root complexes of one node
        ("0000:05:00.0", "0000:80:00.0", "SYS"),
        ("0000:40:00.0", "0000:80:00.0", "SYS"),
    ],
)
def test_path_classes_are_symmetric_and_depend_on_the_common_ancestor(two_levels, one, other, wanted):
    assert path_class(two_levels, one, other) == wanted
    assert path_class(two_levels, other, one) == wanted
    assert wanted in PATH_CLASSES


def test_two_functions_below_one_root_port_are_pix(two_levels):
    two_levels.functions.append(function("0000:0b:00.1", "0000:00:02.0", "pci0000:00", "nic"))
    assert path_class(two_levels, "0000:0b:00.0", "0000:0b:00.1") == "PIX"


def test_a_device_beside_a_lower_switch_belongs_to_the_upper_switch(two_levels):
    # NCCL counts both switches on the path: the lower one, and the upper one, below one port of which both devices are.
    two_levels.functions.append(function("0000:03:00.1", "0000:02:00.0", "pci0000:00", "nic"))
    assert path_class(two_levels, "0000:03:00.1", "0000:05:00.0") == "PXB"
    assert path_class(two_levels, "0000:03:00.1", "0000:0a:00.0") == "PIX"


def test_the_node_of_a_function_overrides_that_of_its_root_complex(two_levels):
    two_levels.function("0000:40:00.0").numa_node = 1
    assert path_class(two_levels, "0000:40:00.0", "0000:80:00.0") == "NODE"


def test_unknown_nodes_are_equal_only_on_a_host_with_one_node(two_levels):
    for root_complex in two_levels.root_complexes:
        root_complex.numa_node = None
    assert path_class(two_levels, "0000:40:00.0", "0000:80:00.0") == "SYS"
    del two_levels.numa_nodes[1]
    assert path_class(two_levels, "0000:40:00.0", "0000:80:00.0") == "NODE"


def test_port_roles_are_inferred_if_the_port_type_is_unknown(two_levels):
    roles = [port_role(two_levels, step.address) for step in two_levels.path("0000:05:00.0")]
    assert roles == ["root_port", *["switch_upstream", "switch_downstream"] * 2, None]


def test_a_known_port_role_is_not_replaced_by_an_inferred_one(two_levels):
    two_levels.function("0000:01:00.0").port_type = "pcie_to_pci_bridge"
    assert port_role(two_levels, "0000:01:00.0") == "pcie_to_pci_bridge"
    # A bridge below a conventional bridge is another one: there are two on the way.
    assert port_role(two_levels, "0000:02:00.0") == "switch_upstream"


def test_path_classes_of_the_recorded_server_with_two_plx_switches(recording):
    host = recording("supermicro-4029gp-ve")
    assert path_class(host, "0000:1b:00.0", "0000:1e:00.0") == "PIX"
    assert path_class(host, "0000:1b:00.0", "0000:1a:00.0") == "PIX"
    assert path_class(host, "0000:1b:00.0", "0000:3d:00.0") == "NODE"
    assert path_class(host, "0000:60:00.0", "0000:60:00.1") == "PIX"


def test_path_classes_of_the_recorded_emulated_server(recording):
    host = recording("emulated-gpu-server")
    assert path_class(host, "0000:13:00.0", "0000:14:00.0") == "PIX"
    assert path_class(host, "0000:13:00.0", "0000:15:00.0") == "PHB"
    assert path_class(host, "0000:15:00.0", "0000:15:10.2") == "PIX"
    assert path_class(host, "0000:13:00.0", "0000:83:00.0") == "SYS"


def test_path_classes_of_the_recorded_dgx2_with_two_levels_of_switches(recording):
    host = recording("nvidia-dgx2")
    gpus = [function.address for function in host.functions if function.kind == "gpu"]
    classes = [path_class(host, gpus[0], gpu) for gpu in gpus]
    assert classes == ["X", "PIX", "PXB", "PXB", *["NODE"] * 4, *["SYS"] * 8]


def test_an_unknown_address_is_refused(two_levels):
    for one, other in (("0000:ff:00.0", "0000:05:00.0"), ("0000:ff:00.0", "0000:ff:00.0")):
        with raises(TopologyError, "function 0000:ff:00.0"):
            path_class(two_levels, one, other)


def test_each_pair_of_devices_is_listed_once_by_name(recording):
    devices = {"nic0": "0000:14:00.0", "gpu0": "0000:13:00.0", "gpu1": "0000:83:00.0"}
    assert pairs(recording("emulated-gpu-server"), devices) == {
        ("gpu0", "gpu1"): "SYS",
        ("gpu0", "nic0"): "PIX",
        ("gpu1", "nic0"): "SYS",
    }


def test_fidelity_is_the_share_of_pairs_with_equal_path_classes():
    host = {("a", "b"): "PIX", ("a", "c"): "SYS", ("b", "c"): "NODE"}
    found = fidelity(host, {("a", "b"): "PIX", ("a", "c"): "PHB", ("b", "c"): "NODE"})
    assert (found.total, found.equal, found.share) == (3, 2, pytest.approx(2 / 3))
    assert found.differences == [{"pair": ["a", "c"], "host": "SYS", "guest": "PHB"}]
    assert fidelity({}, {}).share == 1.0


def test_fidelity_is_refused_if_a_pair_is_on_one_side_only():
    with raises(TopologyError, "'a', 'c'", "one side"):
        fidelity({("a", "b"): "PIX", ("a", "c"): "SYS"}, {("a", "b"): "PIX"})


@given(st.dictionaries(st.tuples(st.text(), st.text()), st.sampled_from(sorted(PATH_CLASSES))))
def test_the_fidelity_of_a_topology_with_itself_is_one(classes):
    assert fidelity(classes, dict(classes)).share == 1.0


def test_the_way_to_a_function_begins_at_the_root_bus(two_levels):
    paths = Paths(two_levels)
    assert [step.address for step in paths.path_to("0000:03:00.0")] == [
        *("0000:00:01.0", "0000:01:00.0", "0000:02:00.0", "0000:03:00.0")
    ]
    # This way begins with one that is known already.
    assert [step.address for step in paths.path_to("0000:04:01.0")] == [
        *("0000:00:01.0", "0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:04:01.0")
    ]
    assert [step.address for step in paths.path_to("0000:80:00.0")] == ["0000:80:00.0"]


def test_a_loop_of_bridges_is_refused(two_levels):
    two_levels.function("0000:00:01.0").parent = "0000:02:00.0"
    with raises(TopologyError, "0000:00:01.0", "loop"):
        Paths(two_levels).path_to("0000:02:00.0")


def test_a_way_may_have_every_function_of_the_host():
    host = Host([], [], [function("0000:00:01.0", None, "a"), function("0000:01:00.0", "0000:00:01.0", "a")])
    assert [step.address for step in Paths(host).path_to("0000:01:00.0")] == ["0000:00:01.0", "0000:01:00.0"]


def test_the_switches_above_a_function_are_listed_from_the_root(two_levels):
    paths = Paths(two_levels)
    assert paths.switches("0000:05:00.0") == ["0000:01:00.0", "0000:03:00.0"]
    assert paths.switches("0000:04:00.0") == ["0000:01:00.0", "0000:03:00.0"]
    assert paths.switches("0000:0a:00.0") == ["0000:01:00.0"]
    assert paths.switches("0000:0b:00.0") == paths.switches("0000:40:00.0") == []


def test_the_fidelity_is_given_as_plain_data():
    differences = [{"pair": ["a", "b"], "host": "PIX", "guest": "SYS"}]
    assert Fidelity(4, 3, differences).to_dict() == {
        "total": 4, "equal": 3, "share": 0.75, "differences": differences
    }  # fmt: skip
    with raises(TopologyError, "'a', 'c'", "one side"):
        fidelity({}, {("b", "c"): "PIX", ("a", "c"): "PIX"})

# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NCCL topology files: what is read from them, and what NCCL would refuse or misread."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Link, TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import pairs, path_class
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.nccl import check_nccl, read_nccl
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.recordings import read_recording
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.saved import read_saved

ORIGINALS = os.environ.get("SAILLOFT_RECORDINGS")

# A dump by NCCL, in its usual form, with a GPU, an InfiniBand NIC, an NVSwitch and a socket interface.
DUMP = """\
<!-- a server -->
<system version="1">
  <cpu host_hash="0x1f" numaid="0" affinity="00000001,0000000f" arch="x86_64" vendor="GenuineIntel" \
familyid="6" modelid="143">
    <pci busid="0000:16:00.0" class="0x060400" vendor="0x1000" device="0xc030" subsystem_vendor="0x15d9" \
subsystem_device="0x1d25" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:18:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90" rank="0" gdr="1">
          <nvlink target="0000:07:00.0" count="5" tclass="0x068000"/>
        </gpu>
      </pci>
      <pci busid="0000:19:00.0" class="0x020700" vendor="0x15b3" device="0x1021" link_speed="" link_width="">
        <nic>
          <net name="mlx5_0" dev="0" speed="400000" port="1" latency="0.000000" guid="0xa87cb10003e1a258"/>
        </nic>
      </pci>
      <pci busid="0000:1a:00.0" class="0x060400" link_speed="16 GT/s" link_width="8">
        <pci busid="0000:1c:00.0" class="0x030200" link_speed="16 GT/s" link_width="8"/>
      </pci>
    </pci>
    <pci busid="0000:07:00.0" class="0x068000" link_speed="8.0 GT/s PCIe" link_width="2"/>
    <nic>
      <net name="lo"/>
    </nic>
  </cpu>
  <cpu numaid="1" affinity="0000000e,000000f0">
    <pci busid="0000:98:00.0" class="0x020000" link_width="16">
      <nic>
        <net name="eth0" guid="1"/>
      </nic>
    </pci>
  </cpu>
</system>
"""


def test_an_nccl_dump_is_read_with_nodes_devices_and_links() -> None:
    host = read_nccl(DUMP)
    assert host.source == "nccl"
    assert (host.cpu.architecture, host.cpu.vendor) == ("x86_64", "GenuineIntel")
    assert [(node.id, node.cpus) for node in host.numa_nodes] == [
        (0, [0, 1, 2, 3, 32]),
        (1, [4, 5, 6, 7, 33, 34, 35]),
    ]
    assert [(item.name, item.numa_node) for item in host.root_complexes] == [("cpu0", 0), ("cpu1", 1)]
    assert [(item.address, item.kind, item.parent, item.numa_node) for item in host.functions] == [
        ("0000:07:00.0", "nvswitch", None, 0),
        ("0000:16:00.0", "bridge", None, 0),
        ("0000:18:00.0", "gpu", "0000:16:00.0", 0),
        ("0000:19:00.0", "nic", "0000:16:00.0", 0),
        ("0000:1a:00.0", "bridge", "0000:16:00.0", 0),
        ("0000:1c:00.0", "gpu", "0000:1a:00.0", 0),
        ("0000:98:00.0", "nic", None, 1),
    ]
    switch = host.function("0000:16:00.0")
    assert (switch.vendor_id, switch.device_id, switch.port_type) == (0x1000, 0xC030, "switch_upstream")
    assert (switch.subsystem_vendor_id, switch.subsystem_device_id) == (0x15D9, 0x1D25)
    assert switch.link == Link(None, None, 32.0, 16)
    assert host.function("0000:1a:00.0").link == Link(None, None, 16.0, 8)
    assert host.function("0000:19:00.0").link is None
    assert host.function("0000:98:00.0").link == Link(None, None, None, 16)
    assert (host.function("0000:18:00.0").vendor_id, host.function("0000:18:00.0").subsystem_vendor_id) == (0, None)
    assert host.function("0000:19:00.0").interfaces == {"rdma": ["mlx5_0"]}
    assert host.function("0000:98:00.0").interfaces == {"net": ["eth0"]}
    assert read_saved(host.to_dict()) == host


def test_path_classes_are_those_that_nccl_computes() -> None:
    host = read_nccl(DUMP)
    gpu = "0000:18:00.0"
    assert path_class(host, gpu, "0000:19:00.0") == "PIX"
    assert path_class(host, gpu, "0000:1c:00.0") == "PXB"
    assert path_class(host, gpu, "0000:07:00.0") == "PHB"
    assert path_class(host, gpu, "0000:98:00.0") == "SYS"


def test_a_numa_node_of_minus_1_is_read_as_unknown() -> None:
    host = read_nccl(DUMP.replace('numaid="1"', 'numaid="-1"').replace("</system>", '<cpu numaid="2"/></system>'))
    assert [node.id for node in host.numa_nodes] == [0, 2]
    assert host.function("0000:98:00.0").numa_node is None
    assert path_class(host, "0000:18:00.0", "0000:98:00.0") == "SYS"


def test_an_impossible_topology_is_refused() -> None:
    """NCCL accepts the file, but the host read from it would have each CPU of node 1 twice."""
    text = DUMP.replace('affinity="0000000e,000000f0"', 'affinity="0000000e,000000ff"')
    check_nccl(text)
    with raises(TopologyError, "CPU 0", "node 1", "node 0"):
        read_nccl(text)
    with raises(TopologyError, "PCI function '0000:98:20.0'", "address"):
        read_nccl(DUMP.replace("0000:98:00.0", "0000:98:20.0"))


def test_the_kind_is_derived_from_the_elements_below_if_the_class_is_missing() -> None:
    host = read_nccl(DUMP.replace(' class="0x030200"', "").replace(' class="0x020700"', ""))
    assert host.function("0000:18:00.0").kind == "gpu"
    assert host.function("0000:19:00.0").kind == "nic"
    assert host.function("0000:1c:00.0").kind == "other"


def devices(count: int, domain: int) -> str:
    """Return ``count`` elements, at most 100 below another."""
    places = [f'<pci busid="{domain:04x}:{number // 32:02x}:{number % 32:02x}.0"/>' for number in range(count)]
    groups = [places[at : at + 100] for at in range(0, count, 100)]
    return "".join(f"{group[0][:-2]}>{''.join(group[1:])}</pci>" for group in groups)


# With the 18 existing elements this is the most that NCCL reads.
FULL = DUMP.replace('<nic>\n      <net name="lo"/>', f'{devices(237, 1)}<nic>\n      <net name="lo"/>')
ATTRIBUTES = " ".join(f'a{number}="1"' for number in range(9))


@pytest.mark.parametrize(
    ("was", "becomes", "message"),
    [
        # Text that NCCL's parser cannot read.
        ("<!-- a server -->", '<?xml version="1.0"?>', "line 1: NCCL does not know XML declarations"),
        ("<!-- a server -->", "<!--a=b-->", "first word contains a '='"),
        ("<!-- a server -->", "<!-- a server", "does not end"),
        ("    <nic>\n", "\t<nic>\n", "'\\t' between elements"),
        ("<cpu host_hash", "<cpu\nhost_hash", "a tab or a line end within a tag"),
        ("<cpu host_hash", "<cpu\thost_hash", "a tab or a line end within a tag"),
        ('version="1"', "version='1'", "a single quote"),
        ('version="1"', "version=1", "is not an element"),
        ("</system>\n", "", "line 2: <system> is never closed"),
        ("  </cpu>\n</system>", "</system>\n", "</system> has no matching opening tag"),
        ('vendor="GenuineIntel"', 'vendor="&quot;"', "no entities"),
        ('vendor="GenuineIntel"', f'vendor="{"x" * 254}"', "longer than NCCL's 253"),
        ('numaid="0"', 'numaid="0" numaid="0"', "numaid twice"),
        ('numaid="0" ', f'numaid="0" {ATTRIBUTES} b="" ', "more than 16 attributes"),
        ('numaid="0" ', f'numaid="0"{" " * 12}', "more than 16 attributes"),
        # Text that NCCL skips or at which it stops.
        ("<nic>\n      <net name", "<NIC>\n      <net name", "does not know <NIC> below <cpu>"),
        ('<net name="lo"/>', '<gpu dev="0"/>', "does not know <gpu> below <nic>"),
        (
            "</system>\n",
            f'<cpu numaid="3">{devices(129, 2)}</cpu><cpu numaid="4">{devices(120, 3)}</cpu></system>',
            "255",
        ),
        ("</system>\n", "</system>\n<system/>\n", "2 elements <system>"),
        ('version="1"', 'version="3"', "version is 3, but NCCL reads 1 only, RCCL 2"),
        ('version="1"', 'version="2"', "line 7: RCCL does not know <nvlink> below <gpu> and skips it"),
        ('<system version="1"', '<system name="a"', "<system>: version is missing"),
        ('numaid="1" ', "", "<cpu>: numaid is missing"),
        ('busid="0000:98:00.0" ', "", "<pci>: busid is missing"),
        (' count="5"', "", "<nvlink>: count is missing"),
        ('name="lo"', 'dev="0"', "<net>: name is missing"),
        (' modelid="143"', "", "familyid without modelid"),
        # With busid, class and link_width it has 12 attributes, and NCCL adds five.
        ('class="0x020000"', f'class="0x020000" {ATTRIBUTES}', "with those that NCCL adds it has 17 attributes"),
        # Text that NCCL misreads.
        ('numaid="1"', 'numaid="one"', "numaid 'one' is not a number"),
        ('numaid="1"', 'numaid="0x1"', "not written as the kernel writes it"),
        ('numaid="1"', 'numaid="0"', "numaid 0 is listed twice"),
        ('busid="0000:1c:00.0"', 'busid="0000:1C:00.0"', "not a PCI address in lower case"),
        ('busid="0000:1c:00.0"', 'busid="1c:00.0"', "not a PCI address in lower case"),
        ('affinity="0000000e,', 'affinity="e-f,', "is not a mask"),
        ('affinity="0000000e,000000f0"', 'affinity=""', "is not a mask"),
        ('arch="x86_64"', 'arch="aarch64"', "arch 'aarch64' is not one of x86_64, arm64, ppc64"),
        ('class="0x020000"', 'class="020000"', "NCCL treats it as a switch"),
        ('0000:16:00.0" class="0x060400"', '0000:16:00.0" class="0x020000"', "class 0x020000 is a device's"),
        ('vendor="0x15b3"', 'vendor="Mellanox"', "vendor 'Mellanox' is not an id"),
        ('link_speed="16 GT/s"', 'link_speed="16.0 GT/s"', "is treated as 8 GT/s"),
        ('link_speed="16 GT/s"', 'link_speed="128.0 GT/s PCIe"', "is treated as 8 GT/s"),
        ('link_width="8"', 'link_width="x8"', "not a number of lanes"),
        ('count="5"', 'count="five"', "count 'five' is not a number"),
        ("        </nic>\n", "        </nic>\n        <nic/>\n", "several <nic>"),
    ],
)
def test_a_file_that_nccl_would_reject_or_misread_is_refused(was: str, becomes: str, message: str) -> None:
    assert was in DUMP
    text = DUMP.replace(was, becomes)
    with pytest.raises(TopologyError) as error:
        check_nccl(text)
    assert message in str(error.value)
    with pytest.raises(TopologyError):
        read_nccl(text)


# RCCL's dump of two dies of a GPU behind a switch, which appears once for each die.
RCCL_DUMP = """\
<system version="2">
  <cpu numaid="0" affinity="0000000f" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="1">
    <pci busid="0000:c1:00.0" class="0x060400" link_speed="16 GT/s" link_width="16">
      <pci busid="0000:c5:00.0" class="0x060400" link_speed="16 GT/s" link_width="16">
        <pci busid="0000:c6:00.0" class="0x120000" vendor="0x1002" device="0x74a1" link_speed="" link_width="">
          <gpu dev="0" sm="304" gcn="gfx942" arch="38911" rank="0" gdr="1">
            <xgmi target="0000:c7:00.0" count="1" tclass="0x120000"/>
          </gpu>
        </pci>
      </pci>
      <pci busid="0000:c5:00.0" class="0x060400" link_speed="16 GT/s" link_width="16">
        <pci busid="0000:c7:00.0" class="0x120000" vendor="0x1002" device="0x74a1" link_speed="" link_width="">
          <gpu dev="1" sm="304" gcn="gfx942" arch="38911" rank="1" gdr="1"/>
        </pci>
      </pci>
      <pci busid="0000:c8:00.0" class="0x020700" vendor="0x15b3" device="0x1021" link_speed="" link_width="">
        <nic>
          <net name="mlx5_0" dev="0" speed="400000" port="1" guid="0xa87cb10003e1a258" maxconn="262144" gdr="1"/>
        </nic>
      </pci>
    </pci>
  </cpu>
</system>
"""


def test_an_rccl_file_is_read() -> None:
    host = read_nccl(RCCL_DUMP)
    assert [(item.address, item.kind, item.parent) for item in host.functions] == [
        ("0000:c1:00.0", "bridge", None),
        ("0000:c5:00.0", "bridge", "0000:c1:00.0"),
        ("0000:c6:00.0", "gpu", "0000:c5:00.0"),
        ("0000:c7:00.0", "gpu", "0000:c5:00.0"),
        ("0000:c8:00.0", "nic", "0000:c1:00.0"),
    ]
    assert path_class(host, "0000:c6:00.0", "0000:c7:00.0") == "PIX"
    assert path_class(host, "0000:c6:00.0", "0000:c8:00.0") == "PXB"
    assert (host.source, host.notes) == ("nccl", [])


def test_an_rccl_file_fails_the_nccl_check() -> None:
    with raises(TopologyError, "line 1", "<system>", "version", "2"):
        check_nccl(RCCL_DUMP)


@pytest.mark.parametrize(
    ("was", "becomes", "message"),
    [
        (' count="1"', "", "line 7: <xgmi>: count is missing"),
        ('count="1"', 'count="one"', "line 7: <xgmi>: count 'one' is not a number"),
        ('target="0000:c7:00.0" ', "", "line 7: <xgmi>: target is missing"),
        ("<xgmi ", "<c2c ", "line 7: RCCL does not know <c2c> below <gpu> and skips it"),
        ('c1:00.0" class="0x060400"', 'c1:00.0" class="0x120000"', "class 0x120000 is a device's"),
        # With the attributes that RCCL adds, it is one more than there is space for.
        ('gcn="gfx942"', " ".join(f'a{number}="1"' for number in range(9)), "it has 17 attributes, more than 16"),
        ('version="2"', 'version="1"', "line 7: NCCL does not know <xgmi> below <gpu> and skips it"),
    ],
)
def test_a_file_that_rccl_would_reject_or_misread_is_refused(was: str, becomes: str, message: str) -> None:
    assert was in RCCL_DUMP
    with pytest.raises(TopologyError) as error:
        read_nccl(RCCL_DUMP.replace(was, becomes, 1))
    assert message in str(error.value)


@pytest.mark.long
def test_a_file_beyond_the_limits_of_rccl_is_refused() -> None:
    cpus = "".join(f'<cpu numaid="{number}">{devices(500, number)}</cpu>' for number in range(1, 17))
    rest = f'<cpu numaid="17">{devices(8191 - 13 - 16 - 8000 - 1, 17)}</cpu>'
    most = RCCL_DUMP.replace("</system>", f"{cpus}{rest}</system>")
    assert len(read_nccl(most).numa_nodes) == 18
    with raises(TopologyError, "8191", "RCCL"):
        read_nccl(most.replace("</system>", '<cpu numaid="18"/></system>'))
    wide = "".join(f'<cpu numaid="{number}"/>' for number in range(1, 513))
    with raises(TopologyError, "512", "<system>", "RCCL"):
        read_nccl(RCCL_DUMP.replace("</system>", f"{wide}</system>"))


def test_the_first_device_of_a_duplicate_address_is_read_and_the_other_is_noted() -> None:
    text = DUMP.replace('busid="0000:98:00.0"', 'busid="0000:18:00.0"')
    with raises(TopologyError, "line 25", "0000:18:00.0", "twice"):
        check_nccl(text)
    host = read_nccl(text)
    assert host.function("0000:18:00.0").kind == "gpu"
    assert host.notes == [
        "NCCL topology, line 25: the nic 0000:18:00.0 and all below it are left out, line 5 has the address already"
    ]
    # A switch that is not the same one is not merged with it.
    other = RCCL_DUMP.replace('c5:00.0" class="0x060400" link_speed="16 GT/s"', 'c5:00.0" class="0x060400"', 1)
    assert [item.address for item in read_nccl(other).functions if item.kind == "gpu"] == ["0000:c6:00.0"]
    assert read_nccl(other).notes == [
        "NCCL topology, line 11: the bridge 0000:c5:00.0 and all below it are left out, line 4 has the address already"
    ]


@pytest.mark.parametrize("text", ["", "\n", "a topology", '{"format": 1}'])
def test_text_that_is_not_a_topology_is_refused(text: str) -> None:
    with pytest.raises(TopologyError):
        read_nccl(text)


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ('version="1">', 'version="1" >'),
        ('link_width="2"/>', 'link_width="2" />'),
        ('link_speed="16 GT/s"', 'link_speed="32 GT/s PCIe/s"'),
        (' modelid="143"', ' modelid="143" model="x"'),
        (' familyid="6" modelid="143"', ""),
    ],
)
def test_unusual_files_that_nccl_accepts_pass_the_check(was: str, becomes: str) -> None:
    assert was in DUMP
    check_nccl(DUMP.replace(was, becomes))


def test_a_file_beyond_the_limits_of_nccl_is_refused() -> None:
    check_nccl(FULL)
    with pytest.raises(TopologyError, match="more than 255 elements"):
        check_nccl(FULL.replace("</system>", '<cpu numaid="7"/></system>'))
    wide = DUMP.replace("</system>", "".join(f'<cpu numaid="{number}"/>' for number in range(2, 129)) + "</system>")
    with raises(TopologyError, "128", "<system>"):
        check_nccl(wide)


# The files that clouds ship: the numbers of GPUs, NICs, switches and NUMA nodes, and of pairs by path class.
SHIPPED = {
    "azure-ndv4-topo.xml": ((8, 8, 4, 4), {"SYS": 96, "PIX": 24}),
    "azure-ndv5-topo.xml": ((8, 8, 8, 2), {"SYS": 64, "PHB": 48, "PIX": 8}),
    "aws-p4d-24xl-topo.xml": ((8, 4, 4, 2), {"SYS": 36, "PHB": 18, "PIX": 12}),
    # Its 32 NICs have no class.
    "aws-p5.48xl-topo.xml": ((0, 0, 8, 2), {"SYS": 256, "PHB": 192, "PIX": 48}),
}


@pytest.mark.skipif(not ORIGINALS, reason="SAILLOFT_RECORDINGS names no directory with the originals")
@pytest.mark.parametrize("name", SHIPPED)
def test_cloud_vendor_files_have_the_expected_devices_and_path_classes(name: str) -> None:
    text = (Path(ORIGINALS or "") / "topology" / name).read_text(encoding="utf-8")
    check_nccl(text)
    host = read_nccl(text)
    count = Counter(function.kind for function in host.functions)
    ends = {item.address: item.address for item in host.functions if item.kind != "bridge"}
    classes = dict(Counter(pairs(host, ends).values()))
    assert ((count["gpu"], count["nic"], count["bridge"], len(host.numa_nodes)), classes) == SHIPPED[name]
    assert {item.link.max_width for item in host.functions if item.link} == {16}


# By recording: the original's file, and the number of pairs of GPUs and NICs by path class. The file of p5 leaves
# classes and ids to NCCL, so no other program can identify its devices.
RECORDED = {
    "aws-p4d-24xl": ("aws-p4d-24xl", {"PIX": 12, "PHB": 18, "SYS": 36}),
    "aws-p5-48xl": ("aws-p5.48xl", {}),
    "azure-nd-a100-v4": ("azure-ndv4", {"PIX": 24, "SYS": 96}),
    "azure-nd-h100-v5": ("azure-ndv5", {"PIX": 8, "PHB": 48, "SYS": 64}),
}
RECORDINGS = Path(__file__).parents[3] / "recordings/nccl"


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_cloud_guests_have_the_expected_path_classes(name: str) -> None:
    host = read_recording(str(RECORDINGS / f"{name}.json"))
    devices = {item.address: item.address for item in host.functions if item.kind in ("gpu", "nic")}
    assert Counter(pairs(host, devices).values()) == RECORDED[name][1]
    if ORIGINALS:
        original = read_recording(f"{ORIGINALS}/topology/{RECORDED[name][0]}-topo.xml")
        # A recording numbers the names of interfaces again.
        for function in [*host.functions, *original.functions]:
            function.interfaces = {kind: ["?"] * len(names) for kind, names in function.interfaces.items()}
        assert host == original

# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Single values of NCCL's files: what is read from them, and whole messages about those that NCCL would misread."""

from __future__ import annotations

import pytest
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Function,
    Link,
    NumaNode,
    RootComplex,
    TopologyError,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.nccl import check_nccl, read_nccl


def system(inside, version=1):
    return f'<system version="{version}">\n{inside}\n</system>'


def pci(more="", inside="", version=1, busid="0000:3b:00.0"):
    return system(f'<cpu numaid="0"><pci busid="{busid}"{more}>{inside}</pci></cpu>', version)


def refusal(text, read=check_nccl):
    """Return the message for a text without its begin and its next step; None: it is read."""
    try:
        read(text)
    except TopologyError as error:
        message = str(error)
    else:
        return None
    begin, end = "NCCL topology, line ", "; read or record the host again"
    assert (message[: len(begin)], message[-len(end) :]) == (begin, end)
    return message[len(begin) : -len(end)]


def one(text):
    (function,) = read_nccl(text).functions
    return function


def test_a_device_has_what_its_element_says():
    text = pci(
        ' class="0x020700" vendor="0x15b3" device="0x1021" subsystem_vendor="0xA" subsystem_device="0xffff" '
        'link_speed="32.0 GT/s PCIe" link_width="16"',
        '<nic><net name="a"/><net name="b" guid="0x1ffff"/><net name="c" guid="65535"/></nic>',
    )
    host = read_nccl(text)
    assert host.functions == [
        Function(
            "0000:3b:00.0", "cpu0", None, 0x020700, 0x15B3, 0x1021, "nic", None, subsystem_vendor_id=0xA,
            subsystem_device_id=0xFFFF, numa_node=0, link=Link(None, None, 32.0, 16),
            interfaces={"net": ["a", "c"], "rdma": ["b"]},
        )
    ]  # fmt: skip
    assert host.root_complexes == [RootComplex("cpu0", 0, 0x3B, 0)]
    assert host.numa_nodes == [NumaNode(0, [], [], 0)]
    assert (host.cpu.architecture, host.cpu.vendor) == (None, None)


@pytest.mark.parametrize(("guid", "kind"), [("0", "net"), ("0xffff", "net"), ("65536", "rdma"), ("-1", "net")])
def test_a_guid_of_more_than_16_bits_is_that_of_an_rdma_device(guid, kind):
    text = pci("", f'<nic><net name="a" guid="{guid}"/></nic>')
    assert one(text).interfaces == {kind: ["a"]}


@pytest.mark.parametrize(
    ("text", "code", "kind"),
    [
        ("", 0, "other"),
        ("0x03", 0x030000, "other"),
        ("0x0302", 0x030200, "gpu"),
        ("0x02", 0x020000, "nic"),
        ("0x068000", 0x068000, "nvswitch"),
        ("0x068001", 0x068001, "other"),
        ("0x010802", 0x010802, "nvme"),
    ],
)
def test_the_class_gives_the_kind_of_a_device_without_elements_below(text, code, kind):
    function = one(pci(f' class="{text}"' if text else ""))
    assert (function.class_code, function.kind, function.port_type) == (code, kind, None)


@pytest.mark.parametrize(
    ("inside", "code", "kind"),
    [
        ('<gpu dev="0"/>', 0x030000, "gpu"),
        ("<nic/>", 0x020000, "nic"),
        ('<pcilink target="a"/>', 0, "other"),
    ],
)
def test_the_elements_below_give_the_kind_of_a_device_without_a_class(inside, code, kind):
    function = one(pci("", inside))
    assert (function.class_code, function.kind) == (code, kind)


@pytest.mark.parametrize(("text", "code"), [("", 0x060400), (' class="0x060401"', 0x060401)])
def test_an_element_with_others_below_is_a_switch(text, code):
    switch, end = read_nccl(pci(text, '<pci busid="0000:3c:00.0"/>')).functions
    assert (switch.class_code, switch.kind, switch.port_type) == (code, "bridge", "switch_upstream")
    assert (end.parent, end.class_code) == (switch.address, 0)


@pytest.mark.parametrize(
    ("speed", "rate"),
    [
        ("2.5 GT/s", 2.5),
        ("5 GT/s", 5.0),
        ("8 GT/s", 8.0),
        ("16 GT/s", 16.0),
        ("32 GT/s", 32.0),
        ("5.0 GT/s PCIe", 5.0),
        ("8.0 GT/s PCIe", 8.0),
        ("16.0 GT/s PCIe", 16.0),
        ("32.0 GT/s PCIe", 32.0),
        ("64.0 GT/s PCIe", 64.0),
        ("2.5 GT/s PCIe", 2.5),
    ],
)
def test_every_link_speed_of_nccls_table_is_read(speed, rate):
    assert one(pci(f' link_speed="{speed}"')).link == Link(None, None, rate, None)
    check_nccl(pci(f' link_speed="{speed}"'))


@pytest.mark.parametrize(
    ("width", "link"), [("", None), ("0", None), ("1", Link(None, None, None, 1)), ("32", Link(None, None, None, 32))]
)
def test_a_link_without_a_speed_has_only_its_width(width, link):
    assert one(pci(f' link_width="{width}"')).link == link


@pytest.mark.parametrize(("numaid", "name", "node"), [("0", "cpu0", 0), ("1", "cpu1", 1), ("-1", "cpu-1", None)])
def test_a_negative_numaid_is_no_node(numaid, name, node):
    host = read_nccl(system(f'<cpu numaid="{numaid}"><pci busid="0000:3b:00.0"/></cpu>'))
    assert host.root_complexes == [RootComplex(name, 0, 0x3B, node)]
    assert host.functions[0].numa_node == node
    assert [item.id for item in host.numa_nodes] == ([] if node is None else [node])


@pytest.mark.parametrize(
    ("affinity", "cpus"),
    [("1", [0]), ("80000000", [31]), ("1,00000000", [32]), ("1,00000001", [0, 32]), ("0", []), ("f0", [4, 5, 6, 7])],
)
def test_the_affinity_is_a_mask_in_words_of_32_bits(affinity, cpus):
    host = read_nccl(system(f'<cpu numaid="0" affinity="{affinity}"/>'))
    assert host.numa_nodes == [NumaNode(0, cpus, [[cpu] for cpu in cpus], 0)]
    assert (host.root_complexes, host.functions) == ([], [])


@pytest.mark.parametrize(
    ("arch", "name"),
    [("x86_64", "x86_64"), ("arm64", "aarch64"), ("ppc64", "ppc64le"), ("ppc64le", "ppc64le"), ("x86_64_v4", "x86_64")],
)
def test_the_architecture_has_the_kernels_name(arch, name):
    cpus = f'<cpu numaid="0" arch="{arch}" vendor="GenuineIntel"/><cpu numaid="1" arch="arm64" vendor="b"/>'
    assert (read_nccl(system(cpus)).cpu.architecture, read_nccl(system(cpus)).cpu.vendor) == (name, "GenuineIntel")


def test_a_system_without_cpus_is_read():
    host = read_nccl('<system version="1"/>')
    assert (host.numa_nodes, host.functions, host.cpu.architecture) == ([], [], None)


PCI = "2: <pci 0000:3b:00.0>: "
MASK = "is not a mask in words of up to 8 digits (0-9, a-f)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('<system version="3"/>', "1: <system>: version is 3, but NCCL reads 1 only, RCCL 2"),
        ('<system version="2"/>', "1: <system>: version is 2, but NCCL reads 1 only"),
        ('<system version="0x1"/>', None),
        ("<system/>", "1: <system>: version is missing"),
        (
            system('<cpu numaid="0"/>\n<cpu numaid="0"/>'),
            "3: <cpu>: numaid 0 is listed twice, and NCCL finds only the first",
        ),
        (system('<cpu numaid="00"/>'), "2: <cpu>: numaid '00' is not a number, and NCCL reads it as 0 or a part of it"),
        (
            system('<cpu numaid="0x0"/>'),
            "2: <cpu>: numaid '0x0' is not written as the kernel writes it, so NCCL does not find it",
        ),
        (system('<cpu numaid="0" affinity="123456789"/>'), f"2: <cpu>: affinity '123456789' {MASK}"),
        (system('<cpu numaid="0" affinity="12345678"/>'), None),
        (system(f'<cpu numaid="0" affinity="{",".join("1" * 32)}"/>'), None),
        (
            system(f'<cpu numaid="0" affinity="{",".join("1" * 33)}"/>'),
            f"2: <cpu>: affinity '{','.join('1' * 33)}' {MASK}",
        ),
        (
            system('<cpu numaid="0" arch="sparc"/>'),
            "2: <cpu>: arch 'sparc' is not one of x86_64, arm64, ppc64; NCCL treats it as unknown",
        ),
        (
            system('<cpu numaid="0" familyid="6"/>'),
            "2: <cpu>: familyid without modelid: NCCL fills in both or none, and stops without modelid on Intel",
        ),
        (system('<cpu numaid="0" familyid="6" vendor="AuthenticAMD"/>'), None),
        (system('<cpu numaid="0" familyid="6" modelid="1"/>'), None),
        (system('<cpu numaid="0" modelid="1"/>'), None),
        (
            pci(busid="0000:3B:00.0"),
            "2: <pci 0000:3B:00.0>: busid '0000:3B:00.0' is not a PCI address in lower case (0000:3b:00.0)",
        ),
        (pci(' class="0x0"'), f"{PCI}class '0x0' is not 0x and digits (0-9, a-f); NCCL treats it as a switch"),
        (pci(' class="0x06"'), None),
        (
            pci(' class="0x0600000"'),
            f"{PCI}class '0x0600000' is not 0x and digits (0-9, a-f); NCCL treats it as a switch",
        ),
        *(
            (
                pci(f' class="{code}"', '<pci busid="0000:3c:00.0"/>'),
                f"{PCI}class {code} is a device's: NCCL does not look at the pci elements below it",
            )
            for code in ("0x068000", "0x068001", "0x030200", "0x0200")
        ),
        (pci(' class="0x120000"', '<pci busid="0000:3c:00.0"/>'), None),
        (pci(' vendor="0x10deF"'), f"{PCI}vendor '0x10deF' is not an id (0x10de)"),
        (pci(' subsystem_device="10de"'), f"{PCI}subsystem_device '10de' is not an id (0x10de)"),
        (
            pci(' link_speed="4 GT/s"'),
            f"{PCI}link_speed '4 GT/s' is not in NCCL's table and is treated as 8 GT/s; the table has 2.5 GT/s, "
            "5 GT/s, 8 GT/s, 16 GT/s, 32 GT/s, 5.0 GT/s PCIe, 8.0 GT/s PCIe, 16.0 GT/s PCIe, 32.0 GT/s PCIe, "
            "64.0 GT/s PCIe",
        ),
        (pci(' link_width="01"'), f"{PCI}link_width '01' is not a number of lanes"),
        (pci("", "<nic/>"), None),
        (pci("", "<nic/><nic/>"), f"{PCI}has several <nic>, and NCCL uses only the first"),
        (pci("", '<gpu dev="x"/>'), "2: <gpu>: dev 'x' is not a number, and NCCL reads it as 0 or a part of it"),
        (pci("", '<gpu dev="-0x1F" sm="0"/>'), None),
        (pci("", '<gpu><c2c bw="1"/></gpu>'), "2: <c2c>: count is missing"),
        (pci("", '<gpu><nvlink count="1"/></gpu>'), "2: <nvlink>: target is missing"),
        (pci("", "<pcilink/>"), "2: <pcilink>: target is missing"),
        (pci("", "<nic><net/></nic>"), "2: <net>: name is missing"),
        (
            system('<cpu numaid="0"><pci/></cpu>'),
            "2: <pci>: busid is missing",
        ),
    ],
)
def test_what_nccl_would_misread_is_refused_with_the_line(text, message):
    assert refusal(text) == message


def many(count):
    return "".join(f' a{number}="1"' for number in range(count))


@pytest.mark.parametrize(
    ("make", "most"),
    [
        # NCCL's own attributes of the element, of which the file gives the required ones.
        (lambda more: system(f'<cpu numaid="0"{more}/>'), 16 - 7),
        (pci, 16 - 8),
        (lambda more: pci("", f"<gpu{more}/>"), 16 - 6),
        (lambda more: pci("", f'<nic><net name="a"{more}/></nic>'), 16 - 15),
        (lambda more: pci("", f"<gpu{more}/>", version=2), 16 - 8),
    ],
)
def test_the_attributes_that_nccl_adds_need_a_place(make, most):
    read_nccl(make(many(most)))
    message = refusal(make(many(most + 1)), read_nccl)
    assert message.endswith("with those that NCCL adds it has 17 attributes, more than 16")


def test_a_device_is_found_by_check_if_it_is_listed_twice():
    text = system('<cpu numaid="0"><pci busid="0000:3b:00.0"/>\n<pci busid="0000:3b:00.0"/></cpu>')
    assert refusal(text) == Mentions("3:", "0000:3b:00.0", "twice")


def test_an_instinct_gpu_is_no_switch_in_rccls_table():
    text = pci(' class="0x120000"', '<pci busid="0000:3c:00.0"/>', version=2)
    assert refusal(text, read_nccl) == Mentions(PCI.rstrip(": "), "0x120000")


def test_nodes_are_sorted_by_number_and_functions_by_address():
    text = system('<cpu numaid="1"><pci busid="0000:ff:00.0"/><pci busid="0000:10:00.0"/></cpu><cpu numaid="0"/>')
    host = read_nccl(text)
    assert [node.id for node in host.numa_nodes] == [0, 1]
    assert [item.address for item in host.functions] == ["0000:10:00.0", "0000:ff:00.0"]
    assert host.root_complexes == [RootComplex("cpu1", 0, 0xFF, 1)]


def test_the_root_complex_has_the_domain_and_bus_of_its_first_device():
    assert read_nccl(pci(busid="0010:3b:00.0")).root_complexes == [RootComplex("cpu0", 0x10, 0x3B, 0)]

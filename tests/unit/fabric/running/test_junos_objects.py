# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each object of a Junos configuration is read, line by line, up to the limits of its numbers.

One file because all its cases are lines that are added to the same base.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from refusals import refuses

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import BufferShares, PortQos, Queue
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.overrides import LINK, SIZE
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import junos

COS = "class-of-service"
SUB_PORTS = [f"et-0/0/2:{part}" for part in range(8)]
PORT = f"{COS} interfaces et-0/0/0"
CNP = f"{COS} congestion-notification-profile cnp"
CLASSES = f"{COS} forwarding-classes"
BASE = (
    f"{COS} classifiers dscp c forwarding-class RDMA loss-priority low code-points af31",
    f"{CLASSES} class RDMA queue-num 3 no-loss pfc-priority 4",
    f"{PORT} unit 0 classifiers dscp c",
)
ALONE = PortQos(
    dscp_to_class=(None,) * 26 + (3,) + (None,) * 37,
    class_to_queue=(None, None, None, 3, None, None, None, None),
    class_to_priority=(None, None, None, 4, None, None, None, None),
    queues=(None, None, None, Queue(False, 0), None, None, None, None),
)


def read(*lines, base=BASE):
    return junos.parse("".join(f"set {line}\n" for line in (*base, *lines)), "leaf1")


def port(*lines, base=BASE):
    return read(*lines, base=base).ports["et-0/0/0"]


def refuse(subject, *facts, lines, base=BASE):
    with refuses(f"leaf1: Junos configuration: {subject}", *facts):
        read(*lines, base=base)


def place(index, value, size=8):
    return tuple(value if position == index else None for position in range(size))


def test_a_port_has_the_classes_of_its_classifier_alone():
    assert read().ports == {"et-0/0/0": ALONE}


def test_lines_without_content_are_passed_over():
    bare = ("interfaces et-0/0/7", "class-of-service interfaces", "class-of-service schedulers")
    assert read(*bare, f"{COS} code-point-aliases dscp x").ports == {"et-0/0/0": ALONE}
    assert list(read(f"{COS} interfaces et-0/0/1").ports) == ["et-0/0/0", "et-0/0/1"]
    assert read(f"{COS} interfaces et-0/0/1").ports["et-0/0/1"] == PortQos()
    statements = (
        "scheduler-map",
        "congestion-notification-profile",
        "classifiers dscp",
        "unit 1 classifiers dscp",
        "unit",
    )
    assert port(*(f"{PORT} {statement}" for statement in statements)) == ALONE
    assert port(f"{CLASSES} queue 5", f"{CLASSES} class X", f"{CLASSES} other X queue-num 1") == ALONE


def test_only_ports_and_what_has_class_of_service_are_listed():
    listed = ["et-0/0/1", "xe-1/2/3", "ge-0/0/0", "mge-0/0/0", "et-0/0/1:3", "ae0"]
    other_names = ["et-0/0", "fxp0", "irb", "ae", "xet-0/0/1", "et-0/0/1:x"]
    lines = [f"interfaces {name} mtu 9000" for name in (*listed, *other_names)]
    assert list(read(*lines).ports) == ["et-0/0/0", *listed]
    assert list(read(*lines, f"{COS} interfaces fxp0 scheduler-map m", f"{COS} scheduler-maps m").ports) == [
        "et-0/0/0",
        "fxp0",
        *listed,
    ]


@pytest.mark.parametrize(
    ("bits", "dscp"),
    [
        ("000000", 0), ("be", 0), ("111111", 63), ("100000", 32), ("cs1", 8), ("cs7", 56), ("af11", 10), ("af43", 38),
        ("ef", 46), ("nc1", 48), ("nc2", 56), ("own", 5),
    ],
)  # fmt: skip
def test_code_points_are_bits_or_aliases(bits, dscp):
    line = BASE[0].replace("af31", bits)
    qos = port(line, f"{COS} code-point-aliases dscp own 000101", base=BASE[1:])
    assert qos.dscp_to_class == place(dscp, 3, 64)


@pytest.mark.parametrize("bits", ["0000000", "00000", "000002", "cs0", "cs8", "af10", "af14", "af51", "26"])
def test_other_code_points_are_refused(bits):
    refuse("class-of-service", repr(bits), "6 bits", lines=[BASE[0].replace("af31", bits)], base=BASE[1:])
    stopped = f"{CNP} output ieee-802.1 code-point cs1 flow-control-queue 3"
    refuse("class-of-service", "'cs1'", "3 bits", lines=[f"{PORT} {CNP.split(' ', 1)[1]}", stopped])


@pytest.mark.parametrize(("number", "read_as"), [("1", 1), ("20000000", 20_000_000), (str(1 << 40), 1 << 40)])
def test_the_size_of_a_queues_buffer_is_read(number, read_as):
    line = f"{COS} apply-macro sailloft queue-buffer-bytes"
    assert read(f"{line} {number}", f"{line} 7").queue_buffer_bytes == read_as
    assert read().queue_buffer_bytes is None


@pytest.mark.parametrize("number", ["0", str((1 << 40) + 1), "-1", "x", ""])
def test_another_size_of_a_queues_buffer_is_refused(number):
    subject, line = "class-of-service apply-macro sailloft", f"{COS} apply-macro sailloft queue-buffer-bytes {number}"
    refuse(subject, f"queue-buffer-bytes {number!r}", f"1 to {1 << 40}", lines=[line])


def numbers(*classes):
    """Return the number, queue and priority of the class of each DSCP from 0 on."""
    names = [line.split()[1] if line.startswith("class") else line.split()[2] for line in classes]
    names = list(dict.fromkeys(names))
    points = [
        f"{COS} classifiers dscp c forwarding-class {name} loss-priority low code-points {number:06b}"
        for number, name in enumerate(names)
    ]
    qos = port(*points, *(f"{CLASSES} {line}" for line in classes), base=BASE[2:])
    return [(each, qos.class_to_queue[each], qos.class_to_priority[each]) for each in qos.dscp_to_class[: len(names)]]


def test_classes_have_the_number_of_their_queue_or_of_their_name():
    assert numbers("class a queue-num 0", "class b queue-num 7 pfc-priority 0") == [(0, 0, None), (7, 7, 0)]
    assert numbers("queue 5 a", "queue 6 b pfc-priority 7") == [(5, 5, None), (6, 6, None)]
    assert numbers("class a queue-num 2", "class a pfc-priority 7", "class a no-loss") == [(2, 2, 7)]
    assert numbers("class sailloft-tc3-pri5 queue-num 2") == [(3, 2, 5)]
    assert numbers("class sailloft-tc3-pri5 queue-num 2 no-loss pfc-priority 4") == [(3, 2, 4)]
    assert numbers("class sailloft-tc8-pri5 queue-num 2", "class sailloft-tc3-pri8 queue-num 4") == [
        (2, 2, None),
        (4, 4, None),
    ]


def test_classes_of_one_queue_get_the_least_free_numbers_and_ours_come_first():
    assert numbers("class a queue-num 0", "class b queue-num 0", "class c queue-num 0") == [
        (0, 0, None),
        (1, 0, None),
        (2, 0, None),
    ]
    assert numbers("class a queue-num 3", "class sailloft-tc3-pri1 queue-num 0") == [(0, 3, None), (3, 0, 1)]
    many_classes = [f"class c{class_number} queue-num 0" for class_number in range(9)]
    assert [number for number, _queue, _priority in numbers(*many_classes)] == [0, 1, 2, 3, 4, 5, 6, 7, 0]


def test_queues_of_multicast_have_no_class():
    assert numbers("class a queue-num 7") == [(7, 7, None)]
    for queue in (8, 11):
        lines = [f"{CLASSES} class a queue-num {queue}", BASE[0].replace("RDMA", "a")]
        refuse(PORT, "class a", lines=lines, base=BASE[2:])


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ("class a queue-num 12", ("queue-num '12'", "0 to 11")),
        ("queue 12 a", ("queue-num '12'", "0 to 11")),
        ("class a queue-num 3 pfc-priority 8", ("pfc-priority '8'", "0 to 7")),
        ("class a queue-num", ("queue-num ''", "0 to 11")),
        ("class a no-loss", ("queue-num",)),
    ],
)
def test_classes_with_invalid_numbers_are_refused(line, facts):
    refuse("forwarding-classes class a", *facts, lines=[f"{CLASSES} {line}"])


HASH = "forwarding-options enhanced-hash-key"
ALL = ("destination_ip", "destination_port", "protocol", "source_ip", "source_port")
NOT_SOURCE_PORT = ("destination_ip", "destination_port", "protocol", "source_ip")
NOT = {
    "no-ipv4-source-address no-ipv6-source-address": "source_ip",
    "no-ipv4-destination-address no-ipv6-destination-address": "destination_ip",
    "no-l4-source-port no-l4-source-port": "source_port",
    "no-l4-destination-port no-l4-destination-port": "destination_port",
    "no-protocol no-next-header": "protocol",
}


def test_the_hash_is_read_where_it_is_the_same_for_both_ip_versions():
    def fields(*lines):
        return read(*(f"{HASH} {line}" for line in lines)).ecmp_fields

    assert fields() == fields("hash-mode layer2-payload") == fields("hash-seed 5") == ALL
    assert fields("family inet no-l4-source-port") is None
    assert fields("family inet no-l4-source-port", "family inet6 no-l4-source-port") == NOT_SOURCE_PORT
    assert read("forwarding-options hash-key family inet layer-3").ecmp_fields is None
    assert fields("hash-mode layer2-header") is None
    for statements, field in NOT.items():
        four, six = statements.split()
        assert fields(f"inet {four}", f"inet6 {six}") == tuple(
            packet_field for packet_field in ALL if packet_field != field
        )
        assert fields(f"inet {four}") is None
        assert fields(f"inet6 {six}") is None
        assert fields(f"inet {four}", f"inet6 {six}", "hash-mode layer2-header") is None


def test_settings_of_a_port_precede_those_of_wildcards():
    maps = [f"{COS} scheduler-maps {name} forwarding-class RDMA scheduler {name}" for name in ("a", "b", "d")]
    rates = [
        f"{COS} schedulers {name} transmit-rate percent {number}" for number, name in enumerate(("a", "b", "d"), 1)
    ]

    def percent(*lines):
        return port(*maps, *rates, *lines).queues[3].bandwidth_percent

    assert percent(f"{PORT} scheduler-map a", f"{COS} interfaces et-* scheduler-map b") == 1
    assert percent(f"{COS} interfaces et-* scheduler-map b", f"{PORT} scheduler-map a") == 1
    assert percent(f"{COS} interfaces all scheduler-map d") == 3
    assert percent(f"{COS} interfaces xe-* scheduler-map d", f"{COS} interfaces *-0/0/0 scheduler-map b") == 2
    assert percent(f"{PORT} scheduler-map a", f"{PORT} scheduler-map b") == 2
    assert list(read(*maps, *rates, f"{COS} interfaces all scheduler-map d").ports) == ["et-0/0/0"]


def test_a_port_has_the_entries_that_all_its_units_have():
    second_classifier = f"{COS} classifiers dscp d forwarding-class RDMA loss-priority low code-points"
    both_classifiers = [f"{second_classifier} af31", f"{second_classifier} cs1", f"{PORT} unit 1 classifiers dscp d"]
    assert port(*both_classifiers).dscp_to_class == ALONE.dscp_to_class
    assert port(f"{second_classifier} cs1", f"{PORT} unit 0 classifiers dscp d").dscp_to_class == place(8, 3, 64)
    assert port(f"{second_classifier} cs1", f"{PORT} unit 1 classifiers dscp d").dscp_to_class == (None,) * 64
    plain = [BASE[0], BASE[1], f"{PORT} classifiers dscp c"]
    assert port(*plain, base=()) == ALONE
    assert port(
        *plain, f"{second_classifier} cs1", f"{PORT} unit * classifiers dscp d", base=()
    ).dscp_to_class == place(8, 3, 64)
    assert port(f"{PORT} unit 0 classifiers ieee-802.1 x", f"{PORT} unit 0 x dscp x") == ALONE


def test_a_classifiers_own_entries_precede_those_of_its_imports():
    two = f"{CLASSES} class OTHER queue-num 5"
    imported = f"{COS} classifiers dscp d forwarding-class OTHER loss-priority low code-points [ af31 cs1 ]"
    classes = port(two, f"{COS} classifiers dscp c import d", imported).dscp_to_class
    assert (classes[26], classes[8]) == (3, 5)
    assert port(f"{COS} classifiers dscp c import default", f"{COS} classifiers dscp c import") == ALONE
    imports = [f"{COS} classifiers dscp c import d", f"{COS} classifiers dscp d import c"]
    refuse("classifiers dscp d", "classifier c", "itself", lines=imports)
    refuse("classifiers dscp c", "classifiers dscp d", lines=imports[:1])
    assert port(f"{COS} classifiers dscp c forwarding-class RDMA loss-priority low") == ALONE


MTU = "interfaces et-0/0/0"


@pytest.mark.parametrize(
    ("lines", "mtu"),
    [
        ([], None),
        (["mtu 9014"], 9000),
        (["mtu 9014", "mtu 9114"], 9100),
        (["mtu 9018", "vlan-tagging"], 9000),
        (["flexible-vlan-tagging", "mtu 9022"], 9000),
        (["mtu 9014", "unit 0 family inet mtu 8999"], 8999),
        (["mtu 9014", "unit 0 family inet mtu 9001"], 9000),
        (["mtu 9014", "unit 0 family inet6 mtu 8998", "unit 1 family inet mtu 8999"], 8998),
        (["mtu 9014", "unit 0 family mpls mtu 8000"], 9000),
        (["mtu 9014", "unit 0 family inet address 10.0.0.1/24"], 9000),
        (["unit 0 family inet mtu 8999"], 1500),
        (["unit 0 family inet mtu 1400"], 1400),
        (["vlan-tagging"], 1500),
        (["mtu 9014", "description mtu"], 9000),
    ],
)
def test_the_mtu_is_the_ip_packets(lines, mtu):
    assert port(*(f"{MTU} {line}" for line in lines)).ip_mtu_bytes == mtu


RATE = [f"{PORT} scheduler-map m", f"{COS} scheduler-maps m forwarding-class RDMA scheduler s"]


@pytest.mark.parametrize(
    ("lines", "queue"),
    [
        (["transmit-rate percent 50"], Queue(False, 50)),
        (["transmit-rate percent 0"], Queue(False, 0)),
        (["transmit-rate percent 100"], Queue(False, 100)),
        (["transmit-rate 10g"], Queue(False, 0)),
        (["transmit-rate percent 50", "priority strict-high"], Queue(True)),
        (["priority strict-high", "priority low"], Queue(False, 0)),
        (["priority"], Queue(False, 0)),
        (["buffer-size percent 7"], Queue(False, 0)),
    ],
)
def test_a_scheduler_is_strict_or_has_a_share(lines, queue):
    assert port(*RATE, *(f"{COS} schedulers s {line}" for line in lines)).queues == place(3, queue)


def test_a_scheduler_map_gives_classes_queues_without_dscps():
    other_class = [f"{CLASSES} class X queue-num 6", f"{COS} scheduler-maps m forwarding-class X scheduler x"]
    qos = port(*RATE, *other_class, f"{COS} schedulers s priority strict-high", f"{COS} schedulers x priority low")
    assert qos == replace(
        ALONE,
        class_to_queue=(None, None, None, 3, None, None, 6, None),
        queues=(None, None, None, Queue(True), None, None, Queue(False, 0), None),
    )
    bare = [f"{COS} scheduler-maps m forwarding-class X", f"{COS} scheduler-maps m forwarding-class X scheduler"]
    assert port(RATE[0], *bare).queues == ALONE.queues
    refuse(PORT, "schedulers s", lines=RATE)


def test_a_scheduler_of_a_queue_precedes_the_default_of_a_class_without():
    """Two classes have queue 3, and only one of them has a scheduler."""
    lines = [
        *RATE,
        f"{COS} schedulers s transmit-rate percent 50",
        f"{CLASSES} class X queue-num 3",
        f"{COS} classifiers dscp c forwarding-class X loss-priority low code-points",
    ]
    for point in ("cs1", "cs7"):
        assert port(*lines[:-1], f"{lines[-1]} {point}").queues == place(3, Queue(False, 50))


def test_the_mtu_is_unknown_if_only_class_of_service_was_read():
    assert port().ip_mtu_bytes is None


def overrides(*lines, effect):
    return {seen.statement: seen.ports for seen in read(*lines).overrides if seen.effect == effect}


@pytest.mark.parametrize(
    ("lines", "speeds", "missing"),
    [
        (["interfaces et-0/0/2 speed 400g"], {"et-0/0/2": 400}, {}),
        (
            ["interfaces et-0/0/2 number-of-sub-ports 2", "interfaces et-0/0/2 speed 400g"],
            {"et-0/0/2:0": 400, "et-0/0/2:1": 400},
            {"interfaces et-0/0/2 number-of-sub-ports 2": ["et-0/0/2", *(f"et-0/0/2:{part}" for part in range(2, 8))]},
        ),
        (["interfaces et-0/0/2:1 speed 100g"], {"et-0/0/2:1": 100}, {}),
        (["interfaces et-0/0/2 number-of-sub-ports 1", "interfaces et-0/0/2 speed 400g"], {"et-0/0/2": 400}, {}),
        (["interfaces et-0/0/2 unused"], {}, {"interfaces et-0/0/2 unused": ["et-0/0/2", *SUB_PORTS]}),
        (["interfaces et-0/0/2 description unused"], {}, {}),
    ],
)
def test_ports_are_split_into_parts(lines, speeds, missing):
    assert read(*lines).speeds_gbit_s == speeds
    assert overrides(*lines, effect=LINK) == {statement: tuple(ports) for statement, ports in missing.items()}


@pytest.mark.parametrize(
    ("settings", "parts", "missing"),
    [
        (["port 2 speed 100g"], {"et-0/0/2": 100}, None),
        (["port-range 2 3 speed 100g"], {"et-0/0/2": 100, "et-0/0/3": 100}, None),
        (["port 2 number-of-sub-ports 4", "port 2 speed 25g"], {f"et-0/0/2:{part}": 25 for part in range(4)}, 4),
        (["port 2 channel-speed 25g"], {f"et-0/0/2:{part}": 25 for part in range(8)}, 8),
        (["port 2 unused"], {}, 0),
    ],
)
def test_the_chassis_splits_ports_of_both_kinds_of_names(settings, parts, missing):
    lines = [f"chassis fpc 0 pic 0 {setting}" for setting in settings]
    others = {port.replace("et-", "xe-"): speed for port, speed in parts.items()}
    assert read(*lines).speeds_gbit_s == {**parts, **others}
    ports = {name for override in read(*lines).overrides for name in override.ports if name.startswith("et-")}
    assert ports == ({"et-0/0/2", *SUB_PORTS[missing:]} if missing is not None else set())


VLAN = ("vlans V vlan-id 10", "vlans V l3-interface irb.10", "interfaces irb unit 10 family inet mtu 1400")


@pytest.mark.parametrize(
    ("lines", "carried"),
    [
        (["interfaces et-0/0/1 unit 0 family ethernet-switching vlan members V"], True),
        (["interfaces et-0/0/1 unit 0 family ethernet-switching vlan members 10"], True),
        (["interfaces et-0/0/1 unit 0 family ethernet-switching vlan members 8-12"], True),
        (["interfaces et-0/0/1 unit 0 family ethernet-switching vlan members all"], True),
        (["vlans V interface et-0/0/1.10"], True),
        (["interfaces et-0/0/1 unit 0 family ethernet-switching", "interfaces et-0/0/1 native-vlan-id 10"], True),
        (["interfaces et-0/0/1 unit 0 family ethernet-switching vlan members 11-12"], False),
        (["interfaces et-0/0/1 unit 0 family ethernet-switching vlan members W"], False),
        (["interfaces et-0/0/1 unit 0 family ethernet-switching"], False),  # the default VLAN
        (["interfaces et-0/0/1 unit 0 family inet address 10.0.0.1/31"], False),
    ],
)
def test_an_interface_between_vlans_concerns_the_ports_that_carry_its_vlan(lines, carried):
    statement = "interfaces irb unit 10 family inet mtu 1400"
    assert overrides(*VLAN, *lines, effect=SIZE) == ({statement: ("et-0/0/1",)} if carried else {})
    for switched_off in ("interfaces irb disable", "interfaces irb unit 10 disable"):
        assert overrides(*VLAN, *lines, switched_off, effect=SIZE) == {}


@pytest.mark.parametrize(
    ("lines", "mtu"),
    [
        ([], 1500),
        (["mtu 9014"], 9000),
        (["mtu 9014", "unit 10 family inet mtu 8000"], 8000),
        (["mtu 9014", "unit 10 family inet6 mtu 8000", "unit 11 family inet mtu 1400"], 8000),
        (["unit 10 family inet mtu 8000"], 1500),
    ],
)
def test_the_mtu_between_vlans_is_the_smallest_or_the_default(lines, mtu):
    places = (
        "routing-instances E vlans default l3-interface irb.10",
        "interfaces et-0/0/1 unit 0 family ethernet-switching",
        "interfaces irb unit 10 family inet address 10.0.0.1/24",
    )
    seen = read(*places, *(f"interfaces irb {line}" for line in lines))
    assert [override.ip_mtu_bytes for override in seen.overrides if override.effect == SIZE] == [mtu]


@pytest.mark.parametrize(("threshold", "alpha"), [("0", -7), ("7", 0), ("10", 3), ("11", None), ("x", None)])
def test_alpha_is_the_threshold_of_the_lossless_partition(threshold, alpha):
    seen = read(f"{COS} shared-buffer ingress buffer-partition lossless dynamic-threshold {threshold}")
    shares = None if alpha is None else BufferShares(alpha_exponent=alpha)
    assert (seen.buffers and seen.buffers.shares) == shares
    assert bool(seen.overrides) == (alpha is None)

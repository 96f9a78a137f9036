# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The survey checks equal parts once, and finds for each part the same as a check of every part."""

from __future__ import annotations

import copy
import json
from dataclasses import asdict, replace

from hypothesis import given
from hypothesis import strategies as st
from plain_system import PLAIN
from roce_path import LINKS, at, nic, reading
from switches import ECN, port_qos

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.links import Cabling, End
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    Application,
    Ecn,
    Headroom,
    Queue,
    Switch,
    dscp_of,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import SeenNic
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path import nic_checks, report, switch_checks
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.findings import fault
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.follow import (
    NO_REQUEST,
    Checker,
    Part,
    PathHost,
    ReadBack,
    Verdicts,
    claims,
    deadlock,
    survey,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.inventory import read_switches
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.table import table

POLICY = read_policy({"classes": {"roce": {}, "storage": {"dscp": 10, "traffic_class": 4, "bandwidth_percent": 20}}})
QOS, NIC = port_qos(POLICY), nic(POLICY)
PORTS = [
    QOS,
    replace(QOS, pfc=()),
    replace(QOS, dscp_to_class=at(QOS.dscp_to_class, 26, 1)),
    replace(QOS, ip_mtu_bytes=1500),
    replace(QOS, queues=at(QOS.queues, 3, Queue(False, 50, Ecn(150, 1500, 100)))),
    replace(QOS, queues=at(QOS.queues, 6, Queue(True, None, ECN)), headroom=at(QOS.headroom, 3, Headroom(0, 0, 0, 0))),
]
PLANNED = [QOS, PORTS[4], replace(QOS, headroom=at(QOS.headroom, 3, Headroom(1, 1 << 20, 0, 0)))]
NICS = [
    SeenNic(NIC),
    SeenNic(replace(NIC, pfc=(4,))),
    SeenNic(replace(NIC, trust="pcp", cnp_dscp=4)),
    SeenNic(replace(NIC, interface="eth1", reaction=())),
    SeenNic(replace(NIC, notification=(0, 3, 4))),
    SeenNic(replace(NIC, notification=None, dcbx_by_host=None), cannot={"notification": "its driver has none"}),
]
APPLICATIONS = [Application("NCCL", 106, queue_pairs=4), Application("NCCL", 104), Application("x", 40, queue_pairs=1)]


def read_back(draw, links, systems=("told",)):
    """Draw readings of the devices of ``links``: equal or different, one object or several, or none."""

    def some(values):
        value = draw(st.sampled_from(values))
        return value if draw(st.integers(0, 3)) else copy.deepcopy(value)

    hosts, switches, planned = {}, {}, {}
    for end in sorted({end for link in links for end in link}):
        if draw(st.integers(0, 15)) == 0:
            continue
        if end.device.startswith("gpu"):
            applications = tuple(some(APPLICATIONS) for _each in range(draw(st.integers(0, 3))))
            hosts[end.device] = PathHost({end.port: some(NICS)}, applications)
        else:
            if end.device not in switches:
                hashed = draw(st.sampled_from([None, ("source_ip",), POLICY.ecmp_fields]))
                switches[end.device] = Switch(end.device, draw(st.sampled_from(systems)), {}, hashed)
            switches[end.device].ports[end.port] = some(PORTS)
            planned.setdefault(end.device, Switch(end.device, "told")).ports[end.port] = some(PLANNED)
    return ReadBack(hosts, switches, planned if draw(st.booleans()) else {})


def looked_at_one_by_one(fabric, seen, rdma):
    """Return what ``survey`` must return, without a cache: check each part of each device in order."""
    parts = []

    def found(layer, place, findings):
        if layer == "application" or (layer, place) not in [part[:2] for part in parts]:
            parts.append(Part(layer, place, tuple(findings)))

    def thing(end):
        if end.device in fabric.switches:
            return seen.switches.get(end.device, Switch("", "")).ports.get(end.port)
        return seen.hosts.get(end.device, PathHost()).nics.get(end.port)

    def reasons(end):
        system = SYSTEMS.get(seen.switches[end.device].system)
        return system.not_held if system else {}

    def plan(end):
        return seen.planned.get(end.device, Switch("", "")).ports.get(end.port)

    def look(layer, place, end, check):
        unread = fault("it was read back", "its settings", None, "nothing is known of it")
        found(layer, place, [unread] if thing(end) is None else check(thing(end)))

    def marked_where_it_leaves(end):
        return seen.switches.get(end.device, Switch("", "")).system == "linux"

    def entering(port, end):
        classified = [] if marked_where_it_leaves(end) else switch_checks.classification(port, rdma)
        return [*classified, *switch_checks.ingress(port, rdma, POLICY, reasons(end), plan(end))]

    def leaving(port, end):
        classified = switch_checks.classification(port, rdma) if marked_where_it_leaves(end) else []
        findings = [*classified, *switch_checks.egress(port, rdma, POLICY, reasons(end), plan(end))]
        checked = [*findings, *entering(port, end)]
        if plan(end) and rdma is POLICY.classes[0] and not any(finding.holds is False for finding in checked):
            findings += switch_checks.as_planned(port, plan(end), POLICY, reasons(end))
        return findings

    def whole(check):
        """Return ``check`` with the differences from the plan."""
        planned = rdma is POLICY.classes[0]
        return lambda nic: [
            *check(nic, rdma, POLICY),
            *(nic_checks.as_planned(nic, NO_REQUEST, POLICY) if planned else ()),
        ]

    ends = sorted(fabric.peer)
    nics = [end for end in ends if end.device not in fabric.switches]
    ports = [end for end in ends if end.device in fabric.switches]
    for host in sorted({end.device for end in nics}):
        if host in seen.hosts and not seen.hosts[host].applications:
            found("application", host, nic_checks.no_application(rdma, seen.hosts[host].nics))
        for app in seen.hosts.get(host, PathHost()).applications:
            if dscp_of(app.tos) not in [rdma_class.dscp for rdma_class in POLICY.classes if rdma_class != rdma]:
                found("application", f"{host} {app.name}", nic_checks.application(app, rdma))
    for end in nics:
        look("sender", str(end), end, whole(nic_checks.sender))
    for end_a in ends:
        if end_a < fabric.peer[end_a]:
            for ends_of in ((end_a, fabric.peer[end_a]), (fabric.peer[end_a], end_a)):
                up, down = (thing(end) for end in ends_of)
                if up and down:
                    ends_there = (getattr(device, "nic", device) for device in (up, down))
                    found("switch", " - ".join(map(str, ends_of)), switch_checks.link(*ends_there))
    for name in sorted(fabric.switches):
        switch = seen.switches.get(name)
        if switch:
            planned = seen.planned[name].ecmp_fields if name in seen.planned else None
            found("switch", name, switch_checks.ecmp(switch.ecmp_fields, reasons(End(name, "")), planned))
    for end in ports:
        look("switch", f"{end}, in", end, lambda port, end=end: entering(port, end))
        look("switch", f"{end}, out", end, lambda port, end=end: leaving(port, end))
    for end in nics:
        look("receiver", str(end), end, whole(nic_checks.receiver))
    check_cnp = switch_checks.cnp_classification
    for end in ports:
        if marked_where_it_leaves(end):
            look(
                "cnp",
                f"{end}, out",
                end,
                lambda port: [*check_cnp(port, POLICY), *switch_checks.cnp_egress(port, POLICY)],
            )
        else:
            look("cnp", f"{end}, in", end, lambda port: check_cnp(port, POLICY))
            look("cnp", f"{end}, out", end, lambda port: switch_checks.cnp_egress(port, POLICY))
    for end in nics:
        look("cnp", str(end), end, lambda nic: nic_checks.reactor(nic, rdma))
    return parts


@st.composite
def fabrics(draw):
    """Draw some links of a small Clos fabric, and the readings of its devices."""
    links = draw(st.lists(st.sampled_from(LINKS), min_size=3, unique=True))
    fabric = Cabling(links, sorted({end.device for link in links for end in link if not end.device.startswith("gpu")}))
    return fabric, read_back(draw, links, ("told", "linux"))


@given(fabrics())
def test_the_survey_equals_a_check_of_every_part(drawn):
    fabric, seen = drawn
    for rdma in POLICY.classes:
        assert list(survey(fabric, Checker(POLICY, rdma, seen))) == looked_at_one_by_one(fabric, seen, rdma)


def test_equal_parts_are_checked_once(monkeypatch):
    looked = []
    monkeypatch.setattr(switch_checks, "egress", lambda port, *_more: looked.append(port) or ())
    fabric = Cabling(LINKS, ["leaf1", "leaf2", "spine1", "spine2"])
    ports = {name: {end.port: QOS for end in fabric.peer if end.device == name} for name in fabric.switches}
    seen = ReadBack({}, {name: Switch(name, "told", qos_by_port) for name, qos_by_port in ports.items()})
    parts = list(survey(fabric, Checker(POLICY, POLICY.classes[0], seen)))
    assert len([part for part in parts if part.where.endswith(", out") and part.layer == "switch"]) == 10
    assert looked == [QOS]


def test_findings_are_stored_by_every_argument_of_their_check():
    calls = []

    def check(*arguments):
        calls.append(arguments)
        yield len(calls)

    verdicts = Verdicts()
    findings = [
        verdicts.findings(check, QOS, *more_arguments)
        for more_arguments in ((), (PORTS[1],), (PORTS[2],), (), (PORTS[2],))
    ]
    assert findings == [(1,), (2,), (3,), (1,), (3,)]
    # Each of these objects is new, and may not have the identity of one that was deleted.
    assert len({verdicts.findings(check, object()) for _number in range(100)}) == 100


def told(parts):
    """Return the module's result for ``parts``, each with its own claims."""
    parts = list(parts)
    faults, unseen = [], []
    for part in parts:
        for finding in part.findings:
            common = {"where": part.where, "rail": "", "what": finding.claim, "wanted": finding.wanted}
            if finding.holds is None:
                unseen.append({**common, "reason": finding.reason})
            else:
                faults.append({**common, "seen": finding.seen, "consequence": finding.reason})
    proof = Proof("fabric", "The path of RoCE traffic", "fabric", claims(parts, "as read back"))
    return {
        "changed": False,
        "holds": not faults,
        "first_fault": faults[0] if faults else None,
        "faults": faults,
        "parts": len(parts),
        "table": table(proof),
        "unseen": unseen,
    }


@given(st.data())
def test_the_module_returns_the_result_of_the_survey(data):
    """The module's result is the same, although it represents equal ports and NICs of all devices by one object."""
    switches = {}
    for end_a, end_b in LINKS:
        for end, far in ((end_a, end_b), (end_b, end_a)):
            if not end.device.startswith("gpu"):
                kind = "host" if far.device.startswith("gpu") else "switch"
                peer = {kind: far.device, "port": far.port}
                switch_data = switches.setdefault(end.device, {"system": "told", "asic": "spectrum3", "ports": {}})
                switch_data["ports"][end.port] = {"speed_gbit_s": 400, "cable_m": 5, "peer": peer}
    seen = read_back(data.draw, LINKS)
    given_policy = {"classes": {switch_data.name: {"dscp": switch_data.dscp} for switch_data in POLICY.classes[:1]}}
    policy = read_policy(given_policy)
    texts = {name: json.dumps(name) for name in seen.switches}
    system = replace(
        PLAIN, name="told", parse=lambda _text, name: seen.switches[name], not_held={"watchdog": "", "headroom": ""}
    )
    SYSTEMS["told"] = system
    try:
        got = report.checked(
            {
                "policy": given_policy,
                "switches": switches,
                "asics": None,
                "running": texts,
                "nics": {
                    name: {port: reading(seen_nic.nic, cannot=seen_nic.cannot) for port, seen_nic in host.nics.items()}
                    for name, host in seen.hosts.items()
                },
                "applications": {
                    name: [
                        {key: value for key, value in asdict(each).items() if value is not None}
                        for each in host.applications
                    ]
                    for name, host in seen.hosts.items()
                },
                "hosts": None,
                "paths": [],
                "rdma_class": None,
                "thresholds": True,
                "name": "fabric",
            }
        )
        planned = plan(policy, read_switches(switches))
        fabric = Cabling(LINKS, list(switches))
        back = replace(seen, planned=planned)
        checker = Checker(policy, policy.classes[0], back)
        parts = [*survey(fabric, checker), deadlock(fabric, checker)]
    finally:
        del SYSTEMS["told"]
    del got["message"]
    assert json.dumps(got) == json.dumps(told(parts))

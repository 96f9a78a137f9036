# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The effect of configuration lines on a Junos switch, for tests."""

from __future__ import annotations

SINGLE = ("mtu", "scheduler-map", "congestion-notification-profile", "queue-num", "pfc-priority", "queue-buffer-bytes")


def commit(running: str, lines: str) -> str:
    """Return the configuration after the lines: delete removes a path and all below it, set replaces a single value."""
    found = [line.split() for line in running.splitlines() if line.strip()]
    for line in lines.splitlines():
        verb, *path = line.split()
        if verb == "delete":
            assert any(each[1 : len(path) + 1] == path for each in found), f"nothing to delete: {line}"
            found = [each for each in found if each[0] != "set" or each[1 : len(path) + 1] != path]
        elif verb == "activate":
            found.remove(["deactivate", *path])
        elif verb == "set":
            if path[-2] in SINGLE or path[-3:-1] == ["classifiers", "dscp"]:
                found = [each for each in found if each[1:-1] != path[:-1]]
            found.append(["set", *path])
    refuse_mixed_queues(found)
    return "\n".join(" ".join(each) for each in found) + "\n"


def refuse_mixed_queues(lines: list[list[str]]) -> None:
    """Fail where a queue has lossless and lossy classes (Juniper, "Defining CoS Forwarding Classes", QFX)."""
    prefix = ["set", "class-of-service", "forwarding-classes", "class"]
    words: dict[str, list[str]] = {}
    for each in lines:
        if each[:4] == prefix:
            words.setdefault(each[4], []).extend(each[5:])
    lossless: dict[str, bool] = {}
    for name, traits in words.items():
        queue = traits[traits.index("queue-num") + 1] if "queue-num" in traits else name
        assert lossless.setdefault(queue, "no-loss" in traits) == ("no-loss" in traits), f"queue {queue} is mixed"


# A configuration as an engineer writes it from Juniper's guides: wildcards, lists, aliases, several words per line, and
# unrelated settings.
BY_HAND = """
set version 23.4X100-D20.5-EVO
set system host-name leaf1
set class-of-service apply-macro sailloft queue-buffer-bytes 20000000
set class-of-service classifiers dscp mydscp forwarding-class CNP loss-priority low code-points nc1
set class-of-service classifiers dscp mydscp forwarding-class NO-LOSS loss-priority low code-points [ 011010 af32 ]
set class-of-service drop-profiles dp1 interpolate fill-level [ 55 90 ]
set class-of-service drop-profiles dp1 interpolate drop-probability [ 0 100 ]
set class-of-service shared-buffer ingress buffer-partition lossless percent 66
set class-of-service forwarding-classes class CNP queue-num 3
set class-of-service forwarding-classes class NO-LOSS queue-num 4 no-loss pfc-priority 3
set class-of-service forwarding-classes class mcast queue-num 8
set class-of-service congestion-notification-profile cnp pfc-watchdog
set class-of-service congestion-notification-profile cnp input dscp code-point 011010 pfc
set class-of-service congestion-notification-profile cnp input dscp code-point 011100 pfc
set class-of-service congestion-notification-profile cnp output ieee-802.1 code-point 011 flow-control-queue 4
set class-of-service interfaces et-* congestion-notification-profile cnp
set class-of-service interfaces et-* scheduler-map sm1
set class-of-service interfaces et-* unit * classifiers dscp mydscp
set class-of-service scheduler-maps sm1 forwarding-class CNP scheduler s2-cnp
set class-of-service scheduler-maps sm1 forwarding-class NO-LOSS scheduler s1
set class-of-service schedulers s1 drop-profile-map loss-priority any protocol any drop-profile dp1
set class-of-service schedulers s1 explicit-congestion-notification
set class-of-service schedulers s2-cnp transmit-rate percent 5
set class-of-service schedulers s2-cnp priority strict-high
set interfaces et-0/0/0 description "to spine1; 400G [a]"
set interfaces et-0/0/0 mtu 9216
set interfaces et-0/0/0 unit 0 family inet mtu 9000
set interfaces et-0/0/2:0 flexible-vlan-tagging
set interfaces et-0/0/2:0 mtu 9216
set interfaces lo0 unit 0 family inet address 10.0.0.1/32
"""

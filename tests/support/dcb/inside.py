# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The program that runs in the emulated machine, as root; each line "RESULT {...}" is the result of one step."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, "/code")

from ansible.module_utils.testing import patch_module_args

MODULES = "ansible_collections.sailloft.fleet.plugins.modules"
NIC = {"rxe0": {"speed_gbit_s": 400, "cable_m": 5}}
LOSSY = {"classes": {"roce": {"mode": "lossy"}}}


def run(*argv: str) -> str:
    """Run a command; return its output, or the reason for its failure."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else f"failed ({done.returncode}): {done.stderr}{done.stdout}"


def module(name: str, check: bool = False, **arguments: object) -> dict:
    """Run a module and return its result."""
    printed = io.StringIO()
    with (
        contextlib.redirect_stdout(printed),
        contextlib.suppress(SystemExit),
        patch_module_args({**arguments, "_ansible_check_mode": check, "_ansible_diff": True}),
    ):
        importlib.import_module(f"{MODULES}.{name}").main()
    return json.loads(printed.getvalue())


def roce(check: bool = False, **more: object) -> dict:
    """Run roce_host on the one NIC."""
    return module("roce_host", check, **{"nics": NIC, **more})


def dcb() -> dict:
    """Return the output of dcb itself."""
    things = ("app", "ets", "pfc", "buffer", "dcbx")
    return {thing: json.loads(run("dcb", "-j", thing, "show", "dev", "dcb0") or "{}") for thing in things}


def tell(name: str, **what: object) -> None:
    print("RESULT " + json.dumps({"name": name, "seconds": round(time.monotonic() - START, 1), **what}), flush=True)


def up(*options: str) -> str:
    """Bring the NIC up, as a boot does."""
    log = run("modprobe", "sailloft_dcb", *options)
    log += run("ip", "link", "set", "dev", "dcb0", "up")
    return log + run("rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "dcb0")


def down() -> str:
    """Remove the NIC and all its settings."""
    return run("rdma", "link", "delete", "rxe0") + run("rmmod", "sailloft_dcb")


def scenario() -> None:
    # On a real host udev and modprobe's own tables would load these modules.
    log = run("modprobe", "crc32_generic") + run("modprobe", "rdma_rxe") + up()
    tell("fresh", log=log, dcb=dcb(), info=module("roce_nic_info"), rdma=run("rdma", "link"))
    tell("check", result=roce(check=True), dcb=dcb())
    tell("first", result=roce(), dcb=dcb())
    tell("second", result=roce(), mtu=Path("/sys/class/net/dcb0/mtu").read_text())
    tell("second check", result=roce(check=True), info=module("roce_nic_info"))

    run("dcb", "app", "add", "dev", "dcb0", "dscp-prio", "26:5")
    run("dcb", "pfc", "set", "dev", "dcb0", "prio-pfc", "5:on")
    run("dcb", "ets", "set", "dev", "dcb0", "willing", "on", "tc-bw", "0:40", "3:60")
    run("dcb", "buffer", "set", "dev", "dcb0", "prio-buffer", "2:1")
    foreign = dcb()
    predicted = roce(check=True)
    tell("foreign", foreign=foreign, predicted=predicted, result=roce(), dcb=dcb(), again=roce())

    tell("lossy", result=roce(policy=LOSSY), dcb=dcb(), again=roce(policy=LOSSY))
    tell("lossless", result=roce(), dcb=dcb(), again=roce())

    log = down() + up()
    lost = roce(check=True)
    boot = run("python3", "-B", "/usr/lib/sailloft/roce_host.pyz", "/etc/sailloft/roce_host.json")
    tell("boot", log=log, lost=lost, boot=boot, result=roce(), dcb=dcb())

    log = down() + up("no_pfc=8")
    raw = run("dcb", "pfc", "set", "dev", "dcb0", "prio-pfc", "3:on")
    tell("refused", log=log, raw=raw, result=roce(), dcb=dcb())

    run("modprobe", "dummy", "numdummies=0")
    log = run("ip", "link", "add", "plain0", "type", "dummy") + run("ip", "link", "set", "dev", "plain0", "up")
    log += run("rdma", "link", "add", "rxe1", "type", "rxe", "netdev", "plain0")
    tell("no dcb", log=log, result=module("roce_host", nics={"rxe1": {}}), info=module("roce_nic_info", nics=["rxe1"]))


START = time.monotonic()
try:
    scenario()
except BaseException as error:
    import traceback

    traceback.print_exc()
    tell("broken", error=str(error))

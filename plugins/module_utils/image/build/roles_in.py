# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Apply Ansible roles inside an image's root, over the connection ``community.general.chroot``.

``ansible-playbook`` of the build host runs a generated play in the room of the layer, together with the code that it
starts in the image. So lookups, tasks on the controller and other connections reach nothing else either, whatever a
role or its variables request. In an image, the variable ``ansible_connection`` is ``community.general.chroot``, and the
fact ``is_chroot`` is true. A role can use them to distinguish an image from a host.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common import ansible_paths
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Role
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.process import Run
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.process import run as run_command
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.room import entered
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import PROXIES, file_inside, tail

PYTHON = "/usr/bin/python3"
# The build host's environment variables that are needed to find programs and archives. All others are not passed on,
# since they would be visible in the image.
KEPT = ("PATH", "SOURCE_DATE_EPOCH", *PROXIES)
SETTINGS = {
    "HOME": "/root",
    "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
    "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "false",
    "ANSIBLE_NOCOLOR": "true",
    "ANSIBLE_NO_TARGET_SYSLOG": "true",
    "ANSIBLE_PIPELINING": "true",
    "ANSIBLE_RETRY_FILES_ENABLED": "false",
    "LC_ALL": "C.UTF-8",
}
# The facts that describe the image. All others describe the build host: its CPUs, memory, disks, addresses and kernel.
FACTS = ["!all", "!min", "distribution", "pkg_mgr", "service_mgr", "python", "chroot", "user"]


def apply(
    root: Path,
    roles: tuple[Role, ...] | list[Role],
    run: Run = run_command,
    layer: str = "image",
    python: str = PYTHON,
    script_failure: Callable[[Path, str], str] = lambda root, output: "",
    memory: str | os.PathLike[str] = "/run",
    network: bool = False,
) -> None:
    """Apply ``roles`` in order to the image at ``root``.

    The play's host has the name of ``layer``. Values in ``vars`` are used unchanged and not templated again.
    Variables and modules are only kept in memory, on the build host (a directory in ``memory``) and in the image.
    ``script_failure`` is that of the family: it finds a package's failed script in the output of a task. With
    ``network``, the roles have the build host's network. Raises ImageError.
    """
    if not roles:
        return
    names = ", ".join(role.name for role in roles)
    if not file_inside(root, python):
        raise ImageError(
            f"the image has no {python}, which Ansible's modules (of {names}) need",
            "add python3 to its packages (on Debian also python3-apt)",
            subject=f"layer {layer}",
        )
    # In memory, because roles' variables may be secret.
    with tempfile.TemporaryDirectory(prefix="sailloft-", dir=memory) as folder:
        play = Path(folder, "play.yml")
        play.write_text(_play(layer, roles), encoding="utf-8")
        inventory = Path(folder, "inventory.json")
        inventory.write_text(json.dumps(_inventory(layer, root, python)), encoding="utf-8")
        # A separate configuration, so that the site's (a log, a cache of facts, other callbacks) does not affect the
        # image.
        configuration = Path(folder, "ansible.cfg")
        configuration.write_text(ansible_paths.configuration(), encoding="utf-8")
        environment = {name: os.environ[name] for name in KEPT if name in os.environ}
        environment.update(SETTINGS, ANSIBLE_CONFIG=str(configuration), ANSIBLE_HOME=folder, ANSIBLE_LOCAL_TEMP=folder)
        command = ["ansible-playbook", "--inventory", str(inventory), str(play)]
        readable = [*ansible_paths.needed(), *(Path(name) for role in roles for name in named_files(role))]
        process = run(entered(root, command, network, readable, [Path(folder)]), env=environment)
    if process.returncode != 0:
        raise ImageError(
            *_failure(process.stdout, names, lambda text: script_failure(root, text)), subject=f"layer {layer}"
        )


def named_files(role: Role) -> list[str]:
    """Return the files of the build host that the role's variables name by absolute path."""
    return [text for text in _texts(role.vars) if text.startswith("/") and os.path.isfile(text)]


def _texts(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, (list, tuple, dict)):
        for item in data.values() if isinstance(data, dict) else data:
            yield from _texts(item)


def _inventory(layer: str, root: Path, python: str) -> dict[str, Any]:
    host = {
        "ansible_connection": "community.general.chroot",
        "ansible_host": str(root),
        "ansible_python_interpreter": python,
        # /run is a tmpfs in the image.
        "ansible_remote_tmp": "/run/ansible",
        "ansible_async_dir": "/run/ansible-async",
    }
    return {"all": {"hosts": {layer: host}}}


def _play(layer: str, roles: tuple[Role, ...] | list[Role]) -> str:
    """Return the play as YAML: JSON, except for the tag on values that must not be templated again."""
    environment = {
        "HOME": "/root",
        # Ansible always reports a chroot if this variable is set; its name is Debian's.
        "debian_chroot": layer,
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        # Byte-compiled files contain time stamps.
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "SYSTEMD_OFFLINE": "1",
    }
    play = {
        "name": f"Layer {layer}",
        "hosts": layer,
        "gather_facts": True,
        "gather_subset": FACTS,
        "environment": environment,
    }
    applied = ", ".join(f'{{"role": {json.dumps(role.name)}, "vars": {_literal(role.vars)}}}' for role in roles)
    return f'[{json.dumps(play)[:-1]}, "roles": [{applied}]}}]\n'


def _literal(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))}: {_literal(value[key])}" for key in value) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_literal(item) for item in value) + "]"
    if isinstance(value, str):
        # JSON's ASCII form has surrogates for characters beyond 16 bits, and YAML does not allow surrogates.
        return "!unsafe " + json.dumps(value, ensure_ascii=False)
    return json.dumps(value)


def _failure(output: str, names: str, script_failure: Callable[[str], str]) -> tuple[str, str]:
    """Return cause and remedy from the output of ``ansible-playbook``, which omits values with no_log."""
    task = ""
    for line in output.splitlines():
        heading = re.match(r"(?:TASK|RUNNING HANDLER) \[(.*)\] \**$", line)
        task = heading[1] if heading else task
        failed = re.match(r"fatal: \[.*?\]: (?:FAILED|UNREACHABLE)! => (\{.*)$", line)
        if failed:
            message = _message(failed[1], script_failure)
            # libapt, which python3-apt brings, is there without the programs that fetch packages.
            lacks_apt = "/apt/methods/" in message and "could not be found" in message
            remedy = "add apt to the packages of a layer" if lacks_apt else "fix the role or its variables"
            return f'"{task}" failed: {message}', remedy
    text = "; ".join(line.strip() for line in output.splitlines() if line.strip())
    start = text.find("[ERROR]")
    text = text[start:] if start >= 0 else text[-600:]
    if "was not found" in text and "role" in text:
        return (
            f"Ansible does not find one of the roles {names}",
            "install it on the build host, or correct its name",
        )
    return f"ansible-playbook for {names} failed: {text[:600] or 'no output'}", "fix the role or its variables"


def _message(result: str, script_failure: Callable[[str], str]) -> str:
    try:
        data = json.loads(result)
    except ValueError:
        return result[:600]
    if data.get("censored"):
        return str(data["censored"])
    # dpkg names the step in its output, and the failure and the script's errors in the other stream.
    script = script_failure("\n".join(str(data[stream]) for stream in ("stdout", "stderr") if data.get(stream)))
    if script:
        return script
    reasons = [str(data.get("msg", "it gave no reason")), *(str(error) for error in data.get("argument_errors", []))]
    if data.get("rc"):
        # The modules command and shell only say "non-zero return code".
        reasons += filter(None, [tail(str(data.get("stderr") or data.get("stdout") or ""))])
    return " ".join("; ".join(reasons).split())

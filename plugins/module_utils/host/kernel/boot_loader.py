# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write kernel arguments to the files that the boot loader reads, so that they survive updates of the kernel.

Two layouts are supported. Debian and Ubuntu generate ``/boot/grub/grub.cfg`` from ``/etc/default/grub`` and then
``/etc/default/grub.d/*.cfg``, which a shell reads in order. The role's drop-in rewrites the two variables there, so
that later changes of the other files take effect, too. RHEL and its relatives have one Boot Loader Specification entry
per kernel (``/boot/loader/entries/*.conf``), and create new entries from ``/etc/kernel/cmdline`` or
``GRUB_CMDLINE_LINUX``. ``grubby`` is not used for them: it replaces all arguments of one name by the last one
(rhboot/grubby, grubby-bls, update_args), so it cannot write two sizes of huge pages.
"""

from __future__ import annotations

import re
import shlex

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import kernel_command_line as command_line

ENTRIES = "/boot/loader/entries"
DROP_IN = "/etc/default/grub.d/90-sailloft.cfg"
GENERATED = "/boot/grub/grub.cfg"
DEFAULTS = "/etc/default/grub"
FOR_NEW_KERNELS = "/etc/kernel/cmdline"
ENVIRONMENT = "/boot/grub2/grubenv"
ASSIGNMENT = re.compile(r'^(GRUB_CMDLINE_LINUX=)(["\']?)(.*?)\2[ \t]*$', re.MULTILINE)
# GRUB reads and writes its environment block as exactly this many bytes, padded with "#".
ENVIRONMENT_BYTES = 1024


def find(system: System, needed: bool = True) -> type[Debian] | type[BootLoaderSpecification] | None:
    """Return the boot loader of this host; None if it is neither. Raises HostError if one is ``needed``."""
    if any(name.endswith(".conf") for name in system.names(ENTRIES)) and system.exists("/boot/grub2"):
        return BootLoaderSpecification
    if system.exists(DEFAULTS) or system.exists("/usr/sbin/update-grub"):
        return Debian
    if not needed:
        return None
    raise HostError(
        f"kernel_arguments: found neither {DEFAULTS} with update-grub nor {ENTRIES}/*.conf with /boot/grub2: this "
        "host does not boot with GRUB as Debian or RHEL set it up",
        "set the arguments in the configuration of its boot loader",
    )


class Debian:
    """GRUB with a generated configuration."""

    name = "grub"

    @staticmethod
    def files(system: System, arguments: list[str], remove: list[str]) -> dict[str, str]:
        """Return the required content of the files, by path."""
        del system  # the drop-in depends only on the requested arguments
        line = shlex.quote(" ".join(map(command_line.quoted, arguments)))
        patterns = "|".join(
            f'{_either(name)}|{_either(name)}=*|\\"{_either(name)}=*'
            for name in sorted(command_line.owned(arguments, remove))
        )
        return {
            DROP_IN: f"""# Written by sailloft.fleet.kernel_arguments; changes here are lost.
sailloft_others() {{
    (
        set -f
        kept=
        for word in $1; do
            case "$word" in
                {patterns or "''"}) ;;
                *) kept="$kept${{kept:+ }}$word" ;;
            esac
        done
        printf '%s' "$kept"
    )
}}
GRUB_CMDLINE_LINUX_DEFAULT="$(sailloft_others "$GRUB_CMDLINE_LINUX_DEFAULT")"
GRUB_CMDLINE_LINUX="$(sailloft_others "$GRUB_CMDLINE_LINUX")"
# Last of all, so that they stand together and in their order.
GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT${{GRUB_CMDLINE_LINUX_DEFAULT:+ }}"{line}
"""
        }

    @staticmethod
    def lines(system: System) -> list[str]:
        """Return the arguments of each entry that boots, except recovery entries."""
        return _linux_lines(system.read(GENERATED) or "")

    @staticmethod
    def stale(system: System, arguments: list[str], remove: list[str]) -> bool:
        """Return True if an entry of the generated configuration lacks the arguments, except recovery entries."""
        lines = _linux_lines(system.read(GENERATED) or "")
        return not lines or not all(command_line.in_effect(line, arguments, remove) for line in lines)

    @staticmethod
    def generate(system: System) -> None:
        """Generate the configuration again."""
        system.run(["update-grub"])


class BootLoaderSpecification:
    """GRUB with one entry per kernel."""

    name = "bls"

    @staticmethod
    def files(system: System, arguments: list[str], remove: list[str]) -> dict[str, str]:
        """Return the required content of the files, by path: for new kernels first, then every entry."""
        wanted = {}
        defaults = system.read_bytes(DEFAULTS)
        if defaults is not None:
            text = defaults.decode()
            wanted[DEFAULTS] = ASSIGNMENT.sub(
                lambda match: match[1] + _in_quotes(command_line.merged(match[3], arguments, remove)), text
            )
        new = system.read_bytes(FOR_NEW_KERNELS)
        if new is not None:
            wanted[FOR_NEW_KERNELS] = command_line.merged(new.decode(), arguments, remove) + "\n"
        environment = system.read_bytes(ENVIRONMENT)
        if environment is not None and b"\nkernelopts=" in environment:
            wanted[ENVIRONMENT] = _environment(environment.decode(), arguments, remove)
        for name in system.names(ENTRIES):
            content = system.read_bytes(f"{ENTRIES}/{name}") if name.endswith(".conf") else None
            if content is not None:
                wanted[f"{ENTRIES}/{name}"] = _entry(content.decode(), arguments, remove)
        return wanted

    @staticmethod
    def lines(system: System) -> list[str]:
        """Return the arguments of each entry, and of new kernels."""
        command_lines = [system.read(FOR_NEW_KERNELS) or ""]
        for name in system.names(ENTRIES):
            text = (system.read(f"{ENTRIES}/{name}") or "") if name.endswith(".conf") else ""
            command_lines += re.findall(r"^options[ \t]+(.*)$", text, re.MULTILINE)
        command_lines += re.findall(r"^kernelopts=(.*)$", system.read(ENVIRONMENT) or "", re.MULTILINE)
        return command_lines

    @staticmethod
    def stale(system: System, arguments: list[str], remove: list[str]) -> bool:
        """Return False: nothing is generated, because GRUB reads the entries themselves."""
        del system, arguments, remove
        return False

    @staticmethod
    def generate(system: System) -> None:
        """Do nothing: nothing is generated."""
        del system


def _in_quotes(line: str) -> str:
    """Return a command line as a shell value in double quotes, or in single quotes if it contains double quotes."""
    return f"'{line}'" if '"' in line else f'"{line}"'


def _either(name: str) -> str:
    """Return a shell pattern for a name in which "-" and "_" are the same."""
    return name.replace("_", "[_-]")


def _linux_lines(configuration: str) -> list[str]:
    # Only entries generated from the two variables: other systems on the disk (30_os-prober) keep their arguments.
    sections = re.findall(
        r"^### BEGIN /etc/grub\.d/10_linux\S* ###$(.*?)^### END", configuration, flags=re.MULTILINE | re.DOTALL
    )
    lines = [line.strip() for section in sections for line in section.splitlines()]
    # Debian's recovery entries leave GRUB_CMDLINE_LINUX_DEFAULT out, by design; they contain "single" or "recovery".
    return [
        line.split(None, 2)[2]
        for line in lines
        if re.match(r"linux(16|efi)?\s+\S+\s+\S", line) and not {"single", "recovery"} & set(line.split())
    ]


def _entry(text: str, arguments: list[str], remove: list[str]) -> str:
    def options(match: re.Match[str]) -> str:
        if "$kernelopts" in match[2]:
            return match[0]  # they are in the environment block
        return match[1] + command_line.merged(match[2], arguments, remove)

    return re.sub(r"^(options[ \t]+)(.*)$", options, text, flags=re.MULTILINE)


def _environment(text: str, arguments: list[str], remove: list[str]) -> str:
    body = re.sub(
        r"^(kernelopts=)(.*)$",
        lambda match: match[1] + command_line.merged(match[2], arguments, remove),
        text.rstrip("#"),
        flags=re.MULTILINE,
    )
    if len(body.encode()) > ENVIRONMENT_BYTES:
        raise HostError(
            f"kernel_arguments: {ENVIRONMENT} can hold {ENVIRONMENT_BYTES} bytes, but needs {len(body.encode())} "
            "with these arguments",
            "use fewer arguments",
        )
    return body + "#" * (ENVIRONMENT_BYTES - len(body.encode()))

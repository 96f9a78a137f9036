# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kernel command lines as data: the requested arguments, and a line that contains them.

Source of the syntax: Linux Documentation/admin-guide/kernel-parameters.rst (arguments are separated by spaces,
double quotes protect spaces, "-" and "_" are the same in the names of arguments).
"""

from __future__ import annotations

import re

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import RequestError

ARGUMENT = re.compile(r'(?:[^\s"]|"[^"]*")+')
# No quotes and no shell syntax, because a shell reads the file with the arguments.
SAFE = re.compile(r"[A-Za-z0-9_.-]+(?:=[A-Za-z0-9_.,:;/@+*%^~=-]*)?")
# Keys whose order and repetition are significant: hugepages= counts pages of the hugepagesz= before it
# (Linux Documentation/admin-guide/mm/hugetlbpage.rst), so they are replaced together.
FAMILIES = ({"hugepagesz", "hugepages", "default_hugepagesz"},)
# Parts of arguments that may be given several times: another pci= is kept beside this one.
PARTS = ("pci=config_acs",)


def key(argument: str) -> str:
    """Return an argument's name as the kernel compares it: "pci" for "pci=realloc". Quotes around it are ignored.

    A part of an argument (``PARTS``) has its own name.
    """
    for part in PARTS:
        if argument.lstrip('"').startswith(f"{part}="):
            return part
    return argument.lstrip('"').split("=", 1)[0].replace("-", "_")


def quoted(argument: str) -> str:
    """Return an argument quoted for GRUB's files: ";" ends a command in GRUB's scripts (GRUB manual, "Quoting")."""
    return f'"{argument}"' if ";" in argument else argument


def split(line: str) -> list[str]:
    """Return the arguments of a command line, in order."""
    return ARGUMENT.findall(line)


def checked(arguments: list[str], remove: list[str]) -> tuple[list[str], list[str]]:
    """Return the requested arguments and the keys to remove, checked. Raises RequestError."""
    for argument in arguments:
        if not SAFE.fullmatch(argument):
            raise RequestError(
                f"kernel_arguments: {argument!r} is not one kernel argument",
                "write name or name=value, without spaces and quotes",
            )
    for name in remove:
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
            raise RequestError(
                f"kernel_arguments: {name!r} is not the name of an argument to remove",
                "give the name without a value",
            )
    both = sorted({key(argument) for argument in arguments} & {key(name) for name in remove})
    if both:
        raise RequestError(f"kernel_arguments: {', '.join(both)} cannot be both set and removed", "name them once")
    size_seen = False
    for argument in arguments:
        size_seen = size_seen or key(argument) in ("hugepagesz", "default_hugepagesz")
        if key(argument) == "hugepages" and not size_seen:
            raise RequestError(
                f"kernel_arguments: {argument} does not say the size of its pages",
                "put hugepagesz= before it",
            )
    return arguments, remove


def owned(arguments: list[str], remove: list[str]) -> set[str]:
    """Return the keys that this module owns: any other argument with one of them is replaced."""
    keys = {key(argument) for argument in [*arguments, *remove]}
    for family in FAMILIES:
        if keys & family:
            keys |= family
    # Removing an argument removes its parts, too.
    return keys | {part for part in PARTS for name in remove if part.startswith(f"{key(name)}=")}


def merged(line: str, arguments: list[str], remove: list[str]) -> str:
    """Return ``line`` without arguments of owned keys, then ``arguments``. A second call changes nothing."""
    keys = owned(arguments, remove)
    return " ".join([argument for argument in split(line) if key(argument) not in keys] + list(map(quoted, arguments)))


def in_effect(line: str, arguments: list[str], remove: list[str]) -> bool:
    """Return True if a kernel started with ``line`` has exactly ``arguments`` for the owned keys, in that order."""
    keys = owned(arguments, remove)
    return [argument.replace('"', "") for argument in split(line) if key(argument) in keys] == arguments

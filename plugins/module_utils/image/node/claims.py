# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compare what a node booted with what the inventory names, claim by claim. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import boot_claims
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.boot_claims import NodePlan
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.boot_report import PATH
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import manifest
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.manifest import Manifest
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.statement import FORMAT
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, compare, not_applicable
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof

# The layers of the proof: claims about the image, the kernel, the image's layers, the services and the health check;
# boot_claims has those about the boot.
IMAGE, KERNEL, LAYER, SERVICES, HEALTH = "image", "kernel", "image_layers", "services", "health"


@dataclass(frozen=True)
class ExpectedImage:
    """The image and settings that a node should run.

    ``digest`` comes from the node's pin or from ``channel`` (empty for a pin); ``manifest`` is the manifest of this
    digest; ``plan`` is what the inventory says about the boot; ``kernel_arguments`` are the
    node's own; ``may_fail`` are units whose failure the inventory expects.
    """

    digest: str
    manifest: Manifest
    plan: NodePlan
    channel: str = ""
    kernel_arguments: tuple[str, ...] = ()
    may_fail: tuple[str, ...] = ()

    @classmethod
    def of_text(
        cls, digest: str, text: str, plan: NodePlan, channel: str, kernel_arguments: list[str], may_fail: list[str]
    ) -> ExpectedImage:
        """Build an instance from the text of manifest.json. Raises ImageError if the text does not match ``digest``."""
        data = text.encode()
        actual = manifest.digest(data)
        if actual != digest:
            reason = f"its manifest has the digest {actual}"
            raise ImageError(reason, "publish the image to the boot servers again", subject=f"image {digest}")
        parsed = manifest.load(data, f"image {digest}")
        return cls(digest, parsed, plan, channel, tuple(kernel_arguments), tuple(may_fail))

    @property
    def arguments(self) -> list[str]:
        """Return the image's kernel arguments, and then the node's."""
        return [*self.manifest.kernel_arguments, *self.kernel_arguments]


@dataclass(frozen=True)
class Gate:
    """The health check's result. ``held`` is None if the gate could not be run; ``output`` is what it printed."""

    what: str
    held: bool | None
    output: str = ""


@dataclass(frozen=True)
class SeenNode:
    """A node's ``state`` as node_image_info read it (empty if the node does not answer), and its health check."""

    state: dict[str, Any] = field(default_factory=dict)
    gate: Gate | None = None


def prove(name: str, expected: ExpectedImage, seen: SeenNode) -> Proof:
    """Return the proof of the node ``name``. Raises ProofError if the name is not a valid file name."""
    title = f"Node {name} runs the image {expected.manifest.name}"
    claims = [*_image(expected, seen.state), *_kernel(expected, seen.state), *_layers(expected, seen.state)]
    claims += boot_claims.claims(name, expected.digest, expected.manifest, expected.plan, seen.state)
    claims += _services(expected, seen.state)
    if seen.gate:
        claims.append(_gate(seen.gate))
    return Proof(name, title, name, claims)


def _image(expected: ExpectedImage, state: dict[str, Any]) -> list[Claim]:
    by = f"the channel {expected.channel}" if expected.channel else "its pin"
    reason = state.get("reason", "")
    return [
        compare(IMAGE, f"the node runs the image that {by} names", expected.digest, state.get("image"), PATH, reason)
    ]


def _kernel(expected: ExpectedImage, state: dict[str, Any]) -> list[Claim]:
    arguments = state.get("arguments")
    # Under UEFI, iPXE puts the file's name, which is the kernel's digest, first (efi_image_cmdline in its efi_image.c).
    if arguments and arguments[0] == expected.manifest.kernel.sha256:
        arguments = arguments[1:]
    return [
        compare(
            KERNEL,
            "the kernel is that of the image",
            expected.manifest.kernel.version,
            state.get("kernel"),
            "/proc/sys/kernel/osrelease",
        ),
        compare(
            KERNEL,
            "the kernel arguments are those of the image, then those of the node",
            expected.arguments,
            arguments,
            "/proc/cmdline",
        ),
    ]


def _layers(expected: ExpectedImage, state: dict[str, Any]) -> list[Claim]:
    report = state.get("report") or {}
    booted = report.get("layers")
    wanted = [layer.name for layer in expected.manifest.layers]
    claims = [
        compare(
            LAYER,
            "the layers are those of the image, lowest first",
            wanted,
            None if booted is None else [layer["name"] for layer in booted],
            PATH,
        )
    ]
    by_name = {layer["name"]: layer for layer in booted or []}
    for layer in expected.manifest.layers:
        name, seen = layer.name, by_name.get(layer.name, {})
        claims.append(compare(LAYER, f"layer {name} has its digest", layer.sha256, seen.get("sha256"), PATH))
        if FORMAT in expected.manifest.first_stage.knows:
            root = f"layer {name} has its root hash"
            claims.append(compare(LAYER, root, layer.verity.root_sha256, seen.get("root_sha256"), PATH))
        verity = f"every read of layer {name} is verified against its digest (dm-verity)"
        if state.get("verity_possible") is False and not seen.get("verity"):
            claims.append(not_applicable(LAYER, verity, True, PATH, "the kernel has no dm-verity", seen.get("verity")))
        else:
            claims.append(compare(LAYER, verity, True, seen.get("verity"), PATH))
    return claims


def _services(expected: ExpectedImage, state: dict[str, Any]) -> list[Claim]:
    failed = state.get("failed_units")
    if failed is not None:
        failed = [unit for unit in failed if unit not in expected.may_fail]
    aside = f" (except {', '.join(expected.may_fail)})" if expected.may_fail else ""
    systemd = state.get("systemd") or {}
    return [
        Claim(
            SERVICES,
            "systemd has started everything",
            "running, or degraded by the units in the next claim",
            systemd.get("state"),
            systemd.get("state") in ("running", "degraded"),
            "systemctl show",
        ),
        compare(SERVICES, f"no unit has failed{aside}", [], failed, "systemctl list-units --state=failed"),
    ]


def _gate(gate: Gate) -> Claim:
    seen = None if gate.held is None else ("healthy" if gate.held else gate.output or "no output")
    # The output does not decide: a command that fails may print "healthy".
    return Claim(HEALTH, "the health check passes", "healthy", seen, gate.held is True, gate.what)

# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Train a small Granite on the bytes of a text, from its last checkpoint on.

    srun python3 train.py --text FILE --directory SHARED_DIRECTORY

Each task of Slurm's step is a rank; without Slurm there is one. A rank with a GPU uses it with NCCL, whose settings are
those of the node (/etc/nccl.conf); without GPUs, Gloo. It needs PyTorch 1.13 or newer, and nothing else.

The directory gets ``checkpoint.pt`` and ``log.jsonl``, whose lines are JSON objects: ``{"begin", "nodes", "backend"}``
for each start, ``{"step", "loss"}``, ``{"checkpoint", "gb", "write_s"}``. What a step computes follows from the
checkpoint before it, its number and the ranks only, so a resumed run computes the losses again that were lost.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pickle
import signal
import socket
import struct
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from granite import Granite, Shape
from torch.nn import functional, utils
from torch.nn.parallel import DistributedDataParallel


def batch(text: torch.Tensor, context: int, size: int, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the inputs and targets (size, context) of a batch, which follow from its number."""
    places = torch.randint(len(text) - context, (size, 1), generator=torch.Generator().manual_seed(number))
    tokens = text[places + torch.arange(context + 1)].long()
    return tokens[:, :-1], tokens[:, 1:]


def save(state: dict[str, Any], path: Path) -> None:
    """Write a checkpoint; at any moment the path is a whole one, also after a loss of power."""
    new = path.with_name(f"{path.name}.new")
    with new.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def interface_towards(address: str) -> str:
    """Return the network interface with this host's address towards another host, or towards itself.

    Gloo would take that of the host's name, which Debian's installer makes 127.0.1.1.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        local = socket.inet_aton(probe.getsockname()[0])
        for _index, name in socket.if_nameindex():
            try:
                reply = fcntl.ioctl(probe, 0x8915, struct.pack("256s", name.encode()))  # SIOCGIFADDR
            except OSError:
                continue  # it has no IPv4 address
            if reply[20:24] == local:
                return name
    sys.exit(f"{socket.gethostname()}: no interface has its address towards {address}: set GLOO_SOCKET_IFNAME")


def join() -> torch.device:
    """Join the other ranks of Slurm's step; return this rank's device."""
    rank, local, ranks, job = (
        int(os.environ.get(f"SLURM_{name}", other))
        for name, other in (("PROCID", "0"), ("LOCALID", "0"), ("NTASKS", "1"), ("JOB_ID", "0"))
    )
    # The host on which srun runs: the job's first. Its name need not resolve.
    address = os.environ.get("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1")
    has_gpu = torch.cuda.is_available()
    device = torch.device("cuda", local % torch.cuda.device_count()) if has_gpu else torch.device("cpu")
    if has_gpu:
        torch.cuda.set_device(device)
    else:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface_towards(address))
    meeting = f"tcp://{address}:{20000 + job % 10000}"
    dist.init_process_group("nccl" if has_gpu else "gloo", init_method=meeting, rank=rank, world_size=ranks)
    return device


class Run:
    """A run: the model, its optimizer, the number of steps done, and the files of both."""

    def __init__(self, given: argparse.Namespace, device: torch.device) -> None:
        self.given, self.device = given, device
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.shape, self.step = Shape(), 0
        torch.manual_seed(0)
        self.model = Granite(self.shape).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3, weight_decay=0.1)
        self.text = torch.frombuffer(bytearray(given.text.read_bytes()), dtype=torch.uint8)
        if len(self.text) <= self.shape.context:
            sys.exit(f"{given.text} has {len(self.text)} bytes: give a file of more than {self.shape.context}")
        self.settings = {**asdict(self.shape), "batch": given.batch, "ranks": self.ranks, "bytes": len(self.text)}
        self.path = given.directory / "checkpoint.pt"
        if self.path.exists():
            self.resume()

    def resume(self) -> None:
        """Take the state of the checkpoint."""
        try:
            state = torch.load(self.path, map_location=self.device)
        except (EOFError, OSError, RuntimeError, pickle.UnpicklingError) as error:
            sys.exit(f"{self.path} cannot be read ({error}): restore it, or give another --directory")
        changed = sorted(name for name, value in self.settings.items() if state["settings"].get(name) != value)
        if changed:
            sys.exit(f"{self.path} was made with other values of {', '.join(changed)}: give another --directory")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]

    def tell(self, **line: Any) -> None:
        """Append a line to the log; the first rank only."""
        if self.rank == 0:
            with (self.given.directory / "log.jsonl").open("a") as log:
                log.write(json.dumps(line) + "\n")

    def checkpoint(self) -> None:
        """Write the checkpoint, with the time that it takes."""
        begun_s = time.monotonic()
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        save({**state, "step": self.step, "settings": self.settings}, self.path)
        self.tell(checkpoint=self.step, gb=self.path.stat().st_size / 1e9, write_s=time.monotonic() - begun_s)

    def train(self) -> None:
        """Make the remaining steps, and a checkpoint at each interval, at the end, and when Slurm ends the job."""
        # Slurm asks all ranks to end before it kills them (KillWait, 30 s). The first one ends its step, for which it
        # needs the others, and writes a checkpoint.
        ends: list[int] = []
        signal.signal(signal.SIGTERM, signal.SIG_IGN if self.rank else lambda number, _frame: ends.append(number))
        nodes = os.environ.get("SLURM_JOB_NODELIST", socket.gethostname())
        self.tell(begin=self.step, nodes=nodes, backend=dist.get_backend())
        model = DistributedDataParallel(self.model)
        written_s = time.monotonic()
        while self.step < self.given.steps:
            number = self.step * self.ranks + self.rank
            inputs, targets = batch(self.text, self.shape.context, self.given.batch, number)
            logits = model(inputs.to(self.device))
            loss = functional.cross_entropy(logits.flatten(0, 1), targets.to(self.device).flatten())
            self.optimizer.zero_grad()
            loss.backward()
            utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            mean = loss.detach() / self.ranks
            dist.all_reduce(mean)
            self.step += 1
            self.tell(step=self.step, loss=mean.item())
            is_due = time.monotonic() - written_s >= self.given.checkpoint_s or self.step == self.given.steps
            if self.rank == 0 and (is_due or ends):
                self.checkpoint()
                written_s = time.monotonic()
            if ends:
                sys.exit(f"ended by Slurm after step {self.step}")


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description="Train a small Granite on a text, from its last checkpoint on.")
    parser.add_argument("--text", type=Path, required=True, help="the file to learn, the same on all nodes")
    parser.add_argument("--directory", type=Path, required=True, help="of log and checkpoint, on storage of all nodes")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=8, help="sequences of each rank in a step")
    parser.add_argument("--checkpoint-s", type=float, default=600.0, help="seconds between two checkpoints")
    given = parser.parse_args()
    try:
        given.text.open().close()
        given.directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        sys.exit(f"train.py: {error}")
    Run(given, join()).train()


if __name__ == "__main__":
    main()

# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One program that answers as the exporters of many nodes, each on its own address, and as the blackbox exporter."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterable, Mapping, Sequence

PROBE = """\
# TYPE probe_success gauge
probe_success 1
probe_duration_seconds 0.0021
probe_dns_lookup_time_seconds 4.1e-05
probe_failed_due_to_regex 0
probe_ip_addr_hash 3.77e+09
probe_ip_protocol 4
"""


class Exporters:
    """Servers of HTTP in a thread. ``answers``: of each port, given in turn to each of its connections."""

    def __init__(self, addresses: Sequence[str], answers: Mapping[int, Sequence[str]], blackbox: int) -> None:
        self.loop = asyncio.new_event_loop()
        self.writers: list[asyncio.StreamWriter] = []
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        places = [(addresses, port, texts) for port, texts in answers.items()]
        for hosts, port, texts in [*places, (["127.0.0.1"], blackbox, [PROBE])]:
            asyncio.run_coroutine_threadsafe(self._listen(hosts, port, texts), self.loop).result(60)

    async def _listen(self, hosts: Sequence[str], port: int, texts: Iterable[str]) -> None:
        bodies = [text.encode() for text in texts]
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n\r\n"
        whole = [head.format(len(body)).encode() + body for body in bodies]

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.writers.append(writer)
            try:
                for text in itertools.cycle(whole):
                    await reader.readuntil(b"\r\n\r\n")
                    writer.write(text)
                    await writer.drain()
            except (OSError, asyncio.IncompleteReadError):
                writer.close()

        for host in hosts:
            await asyncio.start_server(answer, host, port, backlog=4)

    def stop(self) -> None:
        """End all connections, and the thread; its sockets end with the program."""
        asyncio.run_coroutine_threadsafe(self._end(), self.loop).result(60)
        self.loop.call_soon_threadsafe(self.loop.stop)

    async def _end(self) -> None:
        for writer in self.writers:
            writer.close()
        await asyncio.sleep(1)  # in which the readers see it

# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Junos's NETCONF over SSH: a candidate that is loaded, compared, committed and rolled back. See simulated_switch."""

from __future__ import annotations

import difflib
import itertools
import socket
import threading
import time
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import paramiko
from junos_switch import commit
from shown_counters import JUNOS
from simulated_switch import ADDRESSES, DEAD_S, Case, Died, Switch

BASE = "urn:ietf:params:xml:ns:netconf:base:1.0"
END = "]]>]]>"
HELLO = (
    f'<hello xmlns="{BASE}"><capabilities><capability>urn:ietf:params:netconf:base:1.0</capability>'
    "<capability>urn:ietf:params:netconf:capability:candidate:1.0</capability>"
    "<capability>urn:ietf:params:netconf:capability:validate:1.0</capability></capabilities>"
    "<session-id>7</session-id></hello>"
)
SOFTWARE = (
    "<software-information><host-name>leaf1</host-name><product-model>qfx5240</product-model>"
    "<junos-version>23.4X100-D20.5-EVO</junos-version></software-information>"
)
SHARED_BUFFER = """
Ingress:
  Shared Buffer    :  120000 KB
    Lossless                   :  60000 KB
    Lossless Headroom          :  24000 KB
Egress:
  Shared Buffer    :  120000 KB
    Lossless                   :  60000 KB
"""
KEY = paramiko.ECDSAKey.generate()


class Login(paramiko.ServerInterface):
    """A server that accepts every login, for NETCONF."""

    def check_auth_password(self, _username: str, _password: str) -> int:
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, _kind: str, _number: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_subsystem_request(self, channel: Any, name: str) -> bool:
        self.channel = channel
        return name == "netconf"


class Junos(Switch):
    def __init__(self, *given: Any, **told: Any) -> None:
        super().__init__(*given, **told)
        self.candidate = self.running
        self.clock = itertools.count(10)
        self.history = [(self.now("cli"), self.running)]  # the latest entry first
        self.http = self  # the holder of host and port
        self.host, self.port = f"127.0.0.{next(ADDRESSES)}", 0
        self.transports: list[paramiko.Transport] = []
        self.start()

    def now(self, by: str) -> str:
        return f"2026-11-21 14:00:{next(self.clock):02} UTC by admin via {by}"

    def start(self) -> None:
        self.listener = socket.create_server((self.host, self.port))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, args=(self.listener,), daemon=True).start()

    def accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _address = listener.accept()
            except OSError:
                return
            threading.Thread(target=self.session, args=(connection,), daemon=True).start()

    def session(self, connection: socket.socket) -> None:
        transport = paramiko.Transport(connection)
        self.transports.append(transport)
        transport.add_server_key(KEY)
        login = Login()
        try:
            transport.start_server(server=login)
            channel = transport.accept(10)
            if channel is None:  # a client that only checked whether the port is open
                return
            channel.sendall(("Welcome" if self.garbage else HELLO) + END)
            if self.garbage:
                channel.close()
            self.converse(channel)
        except (EOFError, OSError, paramiko.SSHException):
            return
        except Died:
            self.die()

    def converse(self, channel: paramiko.Channel) -> None:
        text = ""
        while data := channel.recv(1 << 16):
            text += data.decode()
            while END in text:
                message, text = text.split(END, 1)
                root = ElementTree.fromstring(message)
                if root.tag.endswith("hello"):
                    continue
                with self.lock:
                    answer = self.answer(root[0])
                message_id = root.get("message-id")
                channel.sendall(f'<rpc-reply xmlns="{BASE}" message-id="{message_id}">{answer}</rpc-reply>{END}')

    def answer(self, rpc: ElementTree.Element) -> str:
        name = rpc.tag.rpartition("}")[2]
        self.hears(name)
        if name == "get-software-information":
            return SOFTWARE
        if name == "get-interface-information":
            assert [child.tag.rpartition("}")[2] for child in rpc] == ["extensive"]
            return JUNOS[JUNOS.index("<interface-information") : JUNOS.index("</rpc-reply>")].replace("junos:", "")
        if name == "command":
            if rpc.text == "show class-of-service shared-buffer":
                return f"<output>\n{SHARED_BUFFER}</output>"
            assert rpc.text == "show system commit"
            commits = (f"{at}   {when}\n    a comment\n" for at, (when, _text) in enumerate(self.history))
            return f"<output>\n{''.join(commits)}</output>"
        if name == "get-configuration" and rpc.get("compare") is None:
            assert rpc.get("format") == "set"
            return f"<configuration-set>\n{escape(self.running)}</configuration-set>"
        if name == "get-configuration":
            before, after = self.running.splitlines(), self.candidate.splitlines()
            diff = "\n".join(difflib.unified_diff(before, after, lineterm="", n=0))
            output = f"<configuration-output>\n{escape(diff)}\n</configuration-output>"
            return f"<configuration-information>{output}</configuration-information>"
        if name == "load-configuration":
            return self.load(rpc)
        if name == "commit-configuration":
            if self.candidate != self.running:
                self.running = self.candidate
                self.history.insert(0, (self.now("netconf"), self.running))
                self.save()
        elif name == "discard-changes":
            self.candidate = self.running
        else:
            assert name in ("lock", "unlock", "validate", "close-session"), name
        return "<ok/>"

    def load(self, rpc: ElementTree.Element) -> str:
        if rpc.get("rollback"):
            self.candidate = self.history[int(rpc.get("rollback") or 0)][1]
            return "<load-configuration-results><ok/></load-configuration-results>"
        assert rpc.get("action") == "set"
        lines = (rpc[0].text or "").splitlines(keepends=True)
        bad = [line for line in lines if self.refuses and self.refuses in line]
        # The correct lines stay in the candidate.
        self.candidate = commit(self.candidate, "".join(line for line in lines if line not in bad))
        if not bad:
            return "<load-configuration-results><ok/></load-configuration-results>"
        return (
            "<load-configuration-results><rpc-error><error-type>protocol</error-type>"
            "<error-tag>operation-failed</error-tag><error-severity>error</error-severity>"
            f"<error-info><bad-element>{self.refuses}</bad-element></error-info>"
            "<error-message>syntax error</error-message></rpc-error></load-configuration-results>"
        )

    def die(self) -> None:
        self.candidate = self.running
        self.stop()

        def come_back() -> None:
            time.sleep(DEAD_S)
            self.start()

        threading.Thread(target=come_back, daemon=True).start()

    def stop(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for each in self.transports:
            each.close()


CASE = Case(
    Junos,
    network_os="junipernetworks.junos.junos",
    connection="netconf",
    ports=["et-0/0/0", "et-0/0/1"],
    start="set system host-name leaf1\nset interfaces et-0/0/1 mtu 1514\n",
    refuses="pfc-priority",
    dies_at="unlock",
)

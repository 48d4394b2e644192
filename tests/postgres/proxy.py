"""A proxy between the library and a server: it cuts a connection at a chosen statement, before or after it ran."""

from __future__ import annotations

import re
import shutil
import socket
import struct
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

import psycopg

Cut = Literal["before", "after", "late"]
SOCKET = ".s.PGSQL.5432"


class Proxy:
    """Listens on a socket in a directory of its own; ``cut`` makes the next matching statement lose its connection."""

    def __init__(self, server: psycopg.ConnectionInfo) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="jq-proxy-"))
        self._local = server.host.startswith("/")
        self._server = f"{server.host}/.s.PGSQL.{server.port}" if self._local else (server.host, server.port)
        self._rules: list[tuple[re.Pattern[str], Cut]] = []
        self._lock = threading.Lock()
        self.let_go = threading.Event()
        self._sockets: list[socket.socket] = []
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(self.directory / SOCKET))
        self._listening.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, pattern: str, when: Cut, times: int = 1) -> None:
        """The next ``times`` statements in which ``pattern`` is found lose their connection: before the server sees
        them, or after it has done them and before its answer is heard. ``late``: the server sees them at ``let_go``,
        long after the connection is lost, as a pooler may bring it about."""
        with self._lock:
            self._rules += [(re.compile(pattern), when)] * times

    @property
    def done(self) -> bool:
        """Whether every cut was made."""
        return not self._rules

    def close(self) -> None:
        shutil.rmtree(self.directory)
        for each in [self._listening, *self._sockets]:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.socket(socket.AF_UNIX if self._local else socket.AF_INET)
                self._sockets += [client, server]
                server.connect(self._server)
                _Line(client, server, self._ruling, self.let_go)

    def _ruling(self, statement: str) -> Cut | None:
        with self._lock:
            for rule in self._rules:
                if rule[0].search(statement):
                    self._rules.remove(rule)
                    return rule[1]
        return None


class _Line:
    """One connection through the proxy."""

    def __init__(
        self,
        client: socket.socket,
        server: socket.socket,
        ruling: Callable[[str], Cut | None],
        let_go: threading.Event,
    ) -> None:
        self._client, self._server, self._ruling, self._let_go = client, server, ruling, let_go
        self._mute = False
        for pump in (self._forth, self._back):
            threading.Thread(target=self._pumped, args=(pump,), daemon=True).start()

    def _pumped(self, pump: Callable[[], None]) -> None:
        with suppress(OSError):
            pump()
        for each in (self._client, self._server):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _forth(self) -> None:
        self._server.sendall(self._message(typed=False))
        while message := self._message(typed=True):
            ruling = self._ruling(message.decode(errors="replace")) if message[:1] in b"QP" else None
            if ruling == "before":
                return
            if ruling is not None:
                self._mute = True
            if ruling == "late":
                self._client.shutdown(socket.SHUT_RDWR)
                self._let_go.wait(30)
            self._server.sendall(message)

    def _message(self, *, typed: bool) -> bytes:
        head = self._exactly(5 if typed else 4)
        if not head:
            return b""
        return head + self._exactly(struct.unpack("!I", head[-4:])[0] - 4)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._client.recv(size - len(data))
            if not more:
                return b""
            data += more
        return data

    def _back(self) -> None:
        while data := self._server.recv(65536):
            if not self._mute:
                self._client.sendall(data)
            elif data[-6:-5] == b"Z":  # Ready for query: what was asked is done.
                return

"""A line between two programs that can go silent and come back, as networks do."""

import socket
import threading
from contextlib import suppress


class Relay:
    """Passes bytes to whatever target is chosen when a connection is made."""

    def __init__(self, choose):
        self._choose = choose
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._flows = threading.Event()
        self._flows.set()
        self._open = set()
        self._held = set()
        self._down = False
        self._threads = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def start(self):
        """Relay from now on."""
        self._run(self._accept)

    def stop(self):
        """Break every connection and take no more."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        self.restore()
        for thread in self._threads:
            thread.join()

    def silence(self):
        """Let nothing through any more, without telling anybody."""
        self._flows.clear()

    def hold(self):
        """Let nothing more through on the connections there are; new ones flow."""
        self._held |= self._open

    def refuse(self):
        """Break every connection, and each new one at once, as a server does that is down."""
        self._down = True
        self._break()

    def restore(self):
        """Break the connections that went silent and let new ones through."""
        self._down = False
        self._break()
        self._flows.set()

    def _break(self):
        for end in tuple(self._open):
            _hang_up(end)

    def _run(self, work, *arguments):
        thread = threading.Thread(target=work, args=arguments)
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self):
        # A listener that is shut down refuses to accept.
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._open.add(near)
                self._run(self._relay, near)

    def _relay(self, near):
        try:
            if self._down:
                near.close()
                return
            with near, suppress(OSError), socket.create_connection(self._choose()) as far:
                for end in (near, far):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._open.add(far)
                back = self._run(self._pump, far, near)
                self._pump(near, far)
                back.join()
                self._open.discard(far)
        finally:
            self._open.discard(near)

    def _pump(self, source, sink):
        with suppress(OSError):
            while chunk := source.recv(1 << 16):
                self._flows.wait()
                if source not in self._held:
                    sink.sendall(chunk)
        _hang_up(source)
        _hang_up(sink)


def address(url):
    """Host and port of an address."""
    host, _, port = url.partition("://")[2].partition(":")
    return host, int(port)


def _hang_up(end):
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)

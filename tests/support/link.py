"""A link between a worker and its server that a test can cut."""
import contextlib
import socket
import threading


class Link:
    """Forwards connections to `port` of this machine, at `self.port`."""

    def __init__(self, port):
        self.target = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.ends, self.lock = [], threading.Lock()
        self.then = "forward"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, then="forward"):
        """Breaks the connections that are open. New ones are made as before; `then`: or closed at once ("refuse"), or
        nothing is said on them ("hang")."""
        self.then = then
        with self.lock:
            ends, self.ends = self.ends, []
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.listener.close()
        self.cut()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                if self.then == "refuse":
                    near.close()
                    continue
                if self.then == "hang":
                    with self.lock:
                        self.ends.append(near)
                    continue
                try:
                    far = socket.create_connection(("127.0.0.1", self.target), timeout=10)
                except OSError:
                    near.close()
                    continue
                far.settimeout(None)
                with self.lock:
                    self.ends += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._copy, args=(source, sink), daemon=True).start()

    @staticmethod
    def _copy(source, sink):
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)  # the other direction goes on
        except OSError:
            for end in (source, sink):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

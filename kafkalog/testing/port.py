"""A port that stays reserved while nothing listens on it."""

import socket

__all__ = ["HOST", "Port"]

HOST = "127.0.0.1"


class Port:
    """A free port of the loopback address, reserved until `close`.

    It is bound here and never listened on.  The kernel gives it to no other process, a listener
    that allows it (SO_REUSEADDR) shares it with this one, and while there is no listener
    connections are refused, as by a broker that is down.
    """

    def __init__(self, number: int = 0) -> None:
        """Take `number`; 0: any.  Raises: OSError with the address when it is taken."""
        self._socket = socket.socket()
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((HOST, number))
        except BaseException as problem:
            self._socket.close()
            if isinstance(problem, OSError):
                problem.filename = f"{HOST}:{number}"
            raise
        self.number: int = self._socket.getsockname()[1]

    def close(self) -> None:
        """Release it."""
        self._socket.close()

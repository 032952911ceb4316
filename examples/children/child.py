"""A child of soloist in Python: ready, work, stop. Nothing but the standard library."""

import os
import signal
import socket
import threading


def notify(what: str) -> None:
    """Tells soloist something by systemd's protocol. Without soloist it does nothing."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):  # an abstract one
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.connect(address)
        sock.send(what.encode())


def work(piece: int, token: str) -> None:
    """One piece of it. The token goes along with every write to elsewhere."""
    print(f"piece {piece} under token {token}", flush=True)


def main() -> None:
    stop = threading.Event()
    # Python runs handlers between two instructions of the main thread: set an event, and no more.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    token = os.environ.get("SOLOIST_TOKEN", "none")

    notify("READY=1")
    piece = 0
    while not stop.is_set():
        piece += 1
        work(piece, token)
        stop.wait(1.0)
    notify("STOPPING=1")
    # Whatever is left has SOLOIST_STOP_SECONDS; then soloist kills us and all that we have started.
    print("ended in order", flush=True)


if __name__ == "__main__":
    main()

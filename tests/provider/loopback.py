"""Any ASGI application on a free port of this machine, in a thread of its own."""

import contextlib
import socket
import threading
import time

import uvicorn


@contextlib.contextmanager
def on_loopback(app, **settings):
    """Serve `app`; yields its base URL. Ends it, open connections included, on the way out."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    options = {"log_level": "critical", "lifespan": "on", "http": "h11", "timeout_graceful_shutdown": 1, **settings}
    # A new logging configuration closes all handlers, and absl's closes the stream under it: here, pytest's.
    options["log_config"] = None
    server = uvicorn.Server(uvicorn.Config(app, **options))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    patience = time.monotonic() + 10
    while not server.started:
        if time.monotonic() > patience or not thread.is_alive():
            raise RuntimeError("the server did not start")
        time.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(5)
        listener.close()

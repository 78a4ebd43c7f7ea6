"""How long a client may take for what it says: uvicorn has no limit of its own."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def impatient(seconds: float) -> type[H11Protocol]:
    """uvicorn's protocol for HTTP/1.1, which closes a connection whose request has no whole head after `seconds`.

    They count from the connection or the request's first byte on, however many bytes come in between. The rest of a
    body that nobody reads, since the answer is out already, has as long.
    """

    class Impatient(H11Protocol):
        _waiting: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._waiting = self.loop.call_later(seconds, self._give_up)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._look()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._look()

        def _look(self) -> None:
            state = self.conn.their_state
            # Between requests a client may be silent: uvicorn ends that.
            begun = state is h11.IDLE and bool(self.conn.trailing_data[0])
            unread = state is h11.SEND_BODY and self.cycle is not None and self.cycle.response_complete
            if not (begun or unread):
                self._stop_waiting()
            elif self._waiting is None and not self.transport.is_closing():
                self._waiting = self.loop.call_later(seconds, self._give_up)

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def _stop_waiting(self) -> None:
            if self._waiting is not None:
                self._waiting.cancel()
                self._waiting = None

        def _give_up(self) -> None:
            self._waiting = None
            if not self.transport.is_closing():
                if self.conn.their_state is h11.IDLE:
                    self.transport.write(_TOO_SLOW)
                self.transport.close()

    return Impatient

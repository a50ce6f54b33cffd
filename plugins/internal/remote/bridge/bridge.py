# Stands between WebSockets, which the proxies of a service let pass, and the ports of the
# sandbox it runs in: GET /SECRET/PORT is answered when something listens at PORT, and each
# binary message is bytes of the connection. It says at what port it listens itself, and
# ends when nobody has used it for a while.
import asyncio
import base64
import hashlib
import hmac
import os
import sys
import time

IDLE = 600  # seconds
PIECE = 64 << 10
MOST = 16 << 20  # bytes of a message
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
used, open_ = time.monotonic(), 0


def frame(kind, data):
    if len(data) < 126:
        head = bytes([0x80 | kind, len(data)])
    elif len(data) < 1 << 16:
        head = bytes([0x80 | kind, 126]) + len(data).to_bytes(2, "big")
    else:
        head = bytes([0x80 | kind, 127]) + len(data).to_bytes(8, "big")
    return head + data


async def message(reader):
    first, second = await reader.readexactly(2)
    size = second & 127
    if size > 125:
        size = int.from_bytes(await reader.readexactly(2 if size == 126 else 8), "big")
    if not second & 128 or size > MOST:
        raise ValueError("no frame of a client")
    mask = await reader.readexactly(4)
    data = await reader.readexactly(size)
    if data:
        key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
        data = (int.from_bytes(data, "big") ^ key).to_bytes(size, "big")
    return first & 15, data


async def inbound(reader, writer, port):
    """What the client sends goes to the port."""
    while True:
        kind, data = await message(reader)
        if kind == CLOSE:
            return
        if kind == PING:
            writer.write(frame(PONG, data))
        elif kind != PONG:
            port.write(data)
        await asyncio.gather(port.drain(), writer.drain())


async def outbound(port, writer):
    """What the port sends goes to the client."""
    while True:
        data = await port.read(PIECE)
        if not data:
            return
        writer.write(frame(BINARY, data))
        await writer.drain()


async def relay(reader, writer, port_reader, port_writer):
    tasks = [asyncio.ensure_future(inbound(reader, writer, port_writer)), asyncio.ensure_future(outbound(port_reader, writer))]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    writer.write(frame(CLOSE, (1000).to_bytes(2, "big")))


async def dial(port):
    for host in ("127.0.0.1", "::1"):
        try:
            return await asyncio.open_connection(host, port)
        except OSError:
            pass
    return None


async def serve(reader, writer, secret):
    lines = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)).split(b"\r\n")
    path = lines[0].split()[1].decode("ascii", "replace").split("?")[0].strip("/").split("/")
    headers = {}
    for line in lines[1:]:
        name, _, value = line.partition(b":")
        headers[name.strip().lower()] = value.strip()
    key = headers.get(b"sec-websocket-key")
    if len(path) != 2 or not hmac.compare_digest(path[0], secret) or not path[1].isdigit() or not key:
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        return
    connection = await dial(int(path[1]))
    if connection is None:
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\nX-Sandbox-Bridge: refused\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        return
    try:
        accept = base64.b64encode(hashlib.sha1(key + GUID).digest())
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n")
        await relay(reader, writer, *connection)
    finally:
        connection[1].close()


async def handle(reader, writer, secret):
    global used, open_
    open_ += 1
    try:
        await serve(reader, writer, secret)
        await writer.drain()
    except (OSError, ValueError, IndexError, asyncio.TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass  # the other end is gone, or is no client of this
    finally:
        writer.close()
        open_, used = open_ - 1, time.monotonic()


async def main():
    secret = os.environ.pop("SANDBOX_BRIDGE_SECRET")
    server = await asyncio.start_server(lambda r, w: handle(r, w, secret), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    while open_ or time.monotonic() - used < IDLE:
        await asyncio.sleep(10)


asyncio.run(main())

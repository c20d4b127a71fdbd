"""Speaks the protocol by which a worker joins (proto/tuft/worker/v1/join.proto), without being one."""
import socket
import ssl
import struct

FIELDS = {"token": 1, "version": 2, "base_model": 3, "config_sha256": 4, "worker_id": 5, "host": 6}


def varint(number):
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def message(fields):
    """Encodes a JoinRequest."""
    return b"".join(varint(FIELDS[name] << 3 | 2) + varint(len(text.encode())) + text.encode()
                    for name, text in fields.items())


def join(address, authority, **fields):
    """Returns the connection, and the server's answer as bytes."""
    context = ssl.create_default_context(cafile=authority)
    connection = context.wrap_socket(socket.create_connection(address, timeout=10), server_hostname=address[0])
    request = message(fields)
    connection.sendall(struct.pack(">I", len(request)) + request)
    (size,) = struct.unpack(">I", received(connection, 4))
    return connection, received(connection, size)


def received(connection, size):
    """Returns `size` bytes; fewer if the server closes the connection."""
    parts = b""
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            break
        parts += part
    return parts

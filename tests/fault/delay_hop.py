"""Holds each packet for a while: reads packets from a TUN device and writes them back to it. Ends with its input, so that it
does not outlive the tests. Arguments: the descriptor of the device, and the seconds."""
import collections
import os
import select
import sys
import time

tunnel, delay = int(sys.argv[1]), float(sys.argv[2])
waiting = collections.deque(maxlen=20_000)  # (when it goes on, packet); the oldest are lost
while True:
    rest = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
    readable = select.select([tunnel, sys.stdin], [], [], rest)[0]
    if sys.stdin in readable:
        break
    if tunnel in readable:
        packet = os.read(tunnel, 65536)
        waiting.append((time.monotonic() + delay, packet))
    while waiting and waiting[0][0] <= time.monotonic():
        os.write(tunnel, waiting.popleft()[1])

"""Holds each packet for a while: reads packets from a TUN device and writes them back to it. Arguments: the descriptor of
the device, and the seconds."""
import collections
import os
import select
import sys
import time

tunnel, delay = int(sys.argv[1]), float(sys.argv[2])
waiting = collections.deque(maxlen=20_000)  # (when it goes on, packet); the oldest are lost
while True:
    rest = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
    if select.select([tunnel], [], [], rest)[0]:
        packet = os.read(tunnel, 65536)
        waiting.append((time.monotonic() + delay, packet))
    while waiting and waiting[0][0] <= time.monotonic():
        os.write(tunnel, waiting.popleft()[1])

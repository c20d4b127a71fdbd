"""What one request may cost: FIXED, and a rate for each byte. The rates of most routes count bytes on the wire, because
their bodies are small also after decompression; those of BY_DECODED count decoded bytes, which are charged to the user.
To tighten: lower a number, or delete a line of KNOWN."""
import dataclasses
import re

FIXED_CPU_NS = 60_000_000
FIXED_PEAK = 24 << 20
FIXED_KEPT = 8 << 20


@dataclasses.dataclass(frozen=True)
class Budget:
    cpu_ns: float  # for each byte
    peak: float    # bytes of memory for each byte
    kept: float
    by_decoded: bool = False

    def excess(self, cost, wire, decoded):
        """Returns the names of what is over the budget."""
        size = decoded if self.by_decoded else wire
        limits = {"cpu_ns": FIXED_CPU_NS + self.cpu_ns * size, "peak": FIXED_PEAK + self.peak * size,
                  "kept": FIXED_KEPT + self.kept * size}
        return [name for name, most in limits.items() if getattr(cost, name) > most]


DEFAULT = Budget(cpu_ns=100, peak=30, kept=1)
# A JSON number of one digit and its comma become 38 bytes: 27 in the parser, the rest in copies on the way to a datum.
# The user is charged for 40.
BY_DECODED = {
    "/api/v1/forward": Budget(cpu_ns=60, peak=20, kept=1, by_decoded=True),
    "/api/v1/forward_backward": Budget(cpu_ns=60, peak=20, kept=1, by_decoded=True),
    "/api/v1/asample": Budget(cpu_ns=60, peak=20, kept=1, by_decoded=True),
    "/api/v1/telemetry": Budget(cpu_ns=60, peak=12, kept=1, by_decoded=True),
    "/oai/api/v1/completions": Budget(cpu_ns=400, peak=40, kept=1, by_decoded=True),
    "/oai/api/v1/chat/completions": Budget(cpu_ns=400, peak=40, kept=1, by_decoded=True),
}


def budget_of(route):
    return BY_DECODED.get(route, DEFAULT)


# Attacks that are known to cost more, with the reason. A line goes when its reason does. `./dev test` leaves them out,
# because some take many seconds; `./dev lab amplification` runs them, and says which lines can go.
KNOWN = {re.compile(pattern): reason for pattern, reason in {}.items()}

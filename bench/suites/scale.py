"""S5: what do more workers give, what does joining over a network cost, how long does a loss of a worker last, and what do
1,000 workers and 100,000 runs cost the control plane?"""
import measure
from suites import scale_joined, scale_losses, scale_pair, scale_placement

PARTS = {"pair": scale_pair, "joined": scale_joined, "losses": scale_losses, "placement": scale_placement}


def run(options):
    data, tables, notes = {}, [], []
    chosen = [name for name in PARTS if not options.parts or name in options.parts]
    for number, name in enumerate(chosen, 1):
        measure.progress.case(name, number, len(chosen))
        try:
            result = PARTS[name].run(options)
        except measure.Skip as reason:
            notes.append(f"{name} skipped: {reason}")
            measure.progress.line(notes[-1])
            continue
        data[name] = result["data"]
        tables += result["tables"]
        notes += result["notes"]
    return dict(data=data, tables=tables, notes=notes)

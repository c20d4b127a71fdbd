"""The HTTP edge and the layers behind it: small requests, parked polls, large bodies, the store, a restart."""
import measure
from suites import api_ingest, api_parked, api_posts, api_restart, api_store


PARTS = {"posts": api_posts, "parked": api_parked, "ingest": api_ingest, "store": api_store, "restart": api_restart}


def run(options):
    data, tables, notes = {}, [], []
    chosen = [name for name in PARTS if not options.parts or name in options.parts]
    for number, name in enumerate(chosen, 1):
        part = PARTS[name]
        measure.progress.case(name, number, len(chosen))
        try:
            result = part.run(options)
        except measure.Skip as reason:
            notes.append(f"{name} skipped: {reason}")
            measure.progress.line(notes[-1])
            continue
        data[name] = result["data"]
        tables += result["tables"]
        notes += result["notes"]
    return dict(data=data, tables=tables, notes=list(dict.fromkeys(notes)))

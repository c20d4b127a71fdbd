"""The HTTP edge and the layers behind it: small requests, parked polls, large bodies, the store, a restart."""
import measure
from suites import api_ingest, api_parked, api_posts, api_restart, api_store


PARTS = {"posts": api_posts, "parked": api_parked, "ingest": api_ingest, "store": api_store, "restart": api_restart}


def run(options):
    return measure.run_parts(PARTS, options)

"""Asks the Prometheus on port 9090 the queries of a Grafana dashboard, and prints which panels get data.

panels_answered.py DASHBOARD"""

import json
import pathlib
import sys
import urllib.parse
import urllib.request

VARIABLES = {"$__rate_interval": "1m", "$base_model": ".*", "$instance": ".*", "$job": ".*", "$server": ".*"}


def answered(query):
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    assert "$" not in query, query
    address = "http://localhost:9090/api/v1/query?" + urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(address, timeout=30) as answer:
        return len(json.load(answer)["data"]["result"])


panels = [one for one in json.loads(pathlib.Path(sys.argv[1]).read_text())["panels"] if one.get("targets")]
found = 0
for panel in panels:
    series = sum(answered(target["expr"]) for target in panel["targets"])
    found += series > 0
    print(f"{series:4} series  {panel['title']}")
print(f"{found} of {len(panels)} panels with data")

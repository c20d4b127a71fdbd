"""Everything that the public interface of the Tinker SDK offers, one function for each feature.

Runs in the environment of one SDK version: prints a JSON line for each feature.

  features.py --url URL --key KEY --model NAME --cli TINKER

A feature has one of these outcomes:
  works      the call did what the SDK documents, as far as its answer shows it
  refused    the server said no, and the text names what it refuses
  not asked  this version of the SDK does not have the call or the argument
  fails      anything else; the matrix fails
"""
import argparse
import json
import pathlib
import sys
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import sdk_exit  # noqa: E402
from feature import FEATURES, Client, NotAsked  # noqa: E402

import training_features, sampling_features, rest_features  # noqa: E402, E401, F401


def names_what_it_refuses(error):
    """Whether the error is an answer of the server that says no: a 4xx other than 404, or a failed future of the user."""
    status = getattr(error, "status_code", None)
    if status is not None:
        return 400 <= status < 500 and status not in (404, 408, 409, 410, 429)
    return type(error).__name__ == "RequestFailedError" and "user" in str(getattr(error, "category", error)).lower()


def outcome(function, client):
    try:
        function(client)
        return "works", ""
    except NotAsked as reason:
        return "not asked", str(reason)
    except Exception as error:  # noqa: BLE001
        if names_what_it_refuses(error):
            return "refused", str(error)[:300]
        return "fails", "".join(traceback.format_exception(error))[-2000:]


def main():
    parser = argparse.ArgumentParser()
    for name in ("url", "key", "model", "cli"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("features", nargs="*", help="only the features whose name contains one of these")
    arguments = parser.parse_args()
    client = Client(arguments.url, arguments.key, arguments.model, arguments.cli)
    for group, name, function in FEATURES:
        if arguments.features and not any(one in name for one in arguments.features):
            continue
        begin = time.monotonic()
        result, detail = outcome(function, client)
        print(json.dumps({"group": group, "feature": name, "outcome": result, "detail": detail,
                          "seconds": round(time.monotonic() - begin, 1)}), flush=True)


if __name__ == "__main__":
    main()
    sdk_exit.leave(0)

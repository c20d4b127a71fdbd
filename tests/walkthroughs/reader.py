"""What the readers of all three documents have: two small base models, a configuration and a client."""

from back_ends import replies
from transcript import READER

CLIENT = "tests/walkthroughs/client.py"
MODELS = """supported_models:
  - {model_name: small, model_path: /tmp/reader/small, max_model_len: 512}
  - {model_name: tiny, model_path: /tmp/reader/tiny, max_model_len: 512}
authorized_users:
  tml-reader: reader
"""
LAUNCH = "tuft launch --config /tmp/reader/tuft_config.yaml"
# Trains and samples on both base models until it is stopped.
LOAD = (
    "bash -c 'while python examples/demo.py --model small --steps 40 && python examples/demo.py --model tiny --steps 40;"
    " do :; done'"
)


def make_models(page):
    page.environment |= {"TUFT_HOME": "/tmp/reader/home", "TINKER_API_KEY": "tml-reader"}
    for size in ("small", "tiny"):
        if not (READER / size).exists():
            page.run(f"tuft init-model /tmp/reader/{size} --family qwen3 --size {size} --seed 7", show=False)


def launch(page, command=LAUNCH, lines="server.ready|telemetry.started"):
    """Starts the server, and shows the lines of its log that match."""
    return page.start("tuft", command, replies(10610, "/api/v1/healthz"), lines=lines)


def ids(output):
    """Returns the ids that the client printed."""
    return dict(line.split(maxsplit=1) for line in output.splitlines() if line.startswith(("tuft.", "weights")))

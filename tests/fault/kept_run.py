"""A training run on a server whose state survives: the server is stopped, something is done to it, and it starts again."""
from raw_client import PROTOBUF, RawClient
from tuft_server import ALICE, MODEL, TuftServer, configuration


class KeptRun:
    """Every operation uses the next seq_id up."""

    def __init__(self, model_dir, directory, env=None):
        self.home, self.env = directory / "home", env
        self.config = configuration(model_dir, persistence={"mode": "FILE"})
        self.server = self.model = None
        self.seq = 0

    def start(self):
        self.server = TuftServer(self.home, self.config, env=self.env)
        self.server.start()
        self.client = RawClient(self.server.url, ALICE, timeout=60)
        if self.model is None:
            self.model = self.client.model(MODEL)

    def take(self):
        self.seq += 1
        return self.seq

    def train(self):
        """Returns None if the pass was made, or why it failed."""
        answer = self.client.result(self.client.train(self.model, self.take()), protobuf=True)
        return None if answer.headers["Content-Type"] == PROTOBUF else answer.json["error"]

    def optim(self):
        """Returns the number of the step."""
        return self.client.result(self.client.optim(self.model, self.take())).json["metrics"]["optimizer_step"]

    def step(self):
        """Trains by one step. Returns its number."""
        assert self.train() is None
        return self.optim()

    def save(self, name, **options):
        answer = self.client.result(self.client.post("save_weights", {
            "model_id": self.model, "path": name, "seq_id": self.take(), "type": "save_weights", **options}))
        assert "path" in answer.json, answer

    def load(self, name):
        return self.client.result(self.client.post("load_weights", {
            "model_id": self.model, "path": f"tinker://{self.model}/weights/{name}", "optimizer": True,
            "seq_id": self.take(), "type": "load_weights"})).json

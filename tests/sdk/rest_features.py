"""REST calls and the command line."""
import contextlib
import datetime
import pathlib
import tempfile
import urllib.request

from feature import NotAsked, class_of, feature, method
from sampling_features import drawn


@feature("REST", "runs and their checkpoints")
def _(client):
    client.saved  # noqa: B018
    assert client.run_id() in [one.training_run_id for one in client.rest.list_training_runs().result().training_runs]
    assert client.rest.get_training_run(client.run_id()).result().base_model == client.model
    assert client.rest.get_training_run_by_tinker_path(client.saved).result().training_run_id == client.run_id()
    assert client.rest.list_checkpoints(client.run_id()).result().checkpoints
    assert client.rest.list_user_checkpoints().result().checkpoints
    assert client.rest.get_weights_info_by_tinker_path(client.saved).result().lora_rank == 8


@feature("REST", "publish, set a time to live, delete")
def _(client):
    path = client.training.save_state("passing").result().path
    client.rest.publish_checkpoint_from_tinker_path(path).result()
    client.rest.unpublish_checkpoint_from_tinker_path(path).result()
    if hasattr(client.rest, "set_checkpoint_ttl_from_tinker_path"):
        client.rest.set_checkpoint_ttl_from_tinker_path(path, 3600).result()
        client.rest.set_checkpoint_ttl_from_tinker_path(path, None).result()
    client.rest.delete_checkpoint_from_tinker_path(path).result()


@feature("REST", "sessions and samplers")
def _(client):
    client.saved  # noqa: B018
    assert client.session_id() in client.rest.list_sessions().result().sessions
    assert client.run_id() in client.rest.get_session(client.session_id()).result().training_run_ids
    sampler = client.rest.get_session(client.session_id()).result().sampler_ids
    drawn(client)
    sampler = client.rest.get_session(client.session_id()).result().sampler_ids
    assert client.rest.get_sampler(sampler[0]).result().base_model == client.model


@feature("REST", "projects")
def _(client):
    method(client.rest, "assign_session_project")(client.session_id(), "project-of-the-matrix").result()


@feature("REST", "trace of a session")
def _(client):
    method(client.rest, "export_session_trace")
    client.saved  # noqa: B018
    answer = client.rest.export_session_trace(client.session_id()).result()
    with urllib.request.urlopen(answer, timeout=60) as body:
        assert body.read()


def this_hour():
    return datetime.datetime.now(datetime.timezone.utc).replace(minute=0, second=0, microsecond=0)


@feature("REST", "audit log")
def _(client):
    audit = method(client.rest, "get_audit_log")
    for kind in ("all", "checkpoints", "projects", "teams", "organizations"):
        audit(kind).result()


@feature("REST", "AdminClient")
def _(client):
    admin = class_of("AdminClient")(base_url=client.url, api_key=client.key)
    admin.get_audit_log("checkpoints").result()
    now = this_hour()
    admin.get_billing_usage(now - datetime.timedelta(hours=2), now).result()
    admin.get_current_checkpoint_storage_usage().result()


@feature("REST", "billing")
def _(client):
    method(client.rest, "get_billing_usage")
    now = this_hour()
    client.rest.get_billing_usage(now - datetime.timedelta(hours=2), now).result()


@feature("REST", "checkpoint storage")
def _(client):
    method(client.rest, "get_current_checkpoint_storage_usage")().result()


@feature("CLI", "version, run list, run info")
def _(client):
    client.saved  # noqa: B018
    client.command("version")
    assert client.run_id() in client.command("--format", "json", "run", "list")
    client.command("run", "info", client.run_id())


@feature("CLI", "checkpoint list, info, publish, unpublish, set-ttl, delete")
def _(client):
    path = client.training.save_state("by-command").result().path
    assert "by-command" in client.command("--format", "json", "checkpoint", "list", "--run-id", client.run_id())
    client.command("checkpoint", "info", path)
    client.command("checkpoint", "publish", path)
    client.command("checkpoint", "unpublish", path)
    with contextlib.suppress(NotAsked):
        client.command("checkpoint", "set-ttl", "--ttl", "3600", path)
    client.command("checkpoint", "delete", "--yes", path)


@feature("CLI", "checkpoint download")
def _(client):
    kind = client.saved if hasattr(client.training, "save_weights_external") else \
        client.training.save_weights_for_sampler("downloaded").result().path
    with tempfile.TemporaryDirectory() as folder:
        client.command("checkpoint", "download", kind, "--output", folder)
        names = [one.name for one in pathlib.Path(folder).rglob("*")]
        assert "adapter_model.safetensors" in names, names


@feature("CLI", "model list")
def _(client):
    assert client.model in client.command("--format", "json", "model", "list")


@feature("CLI", "auth status")
def _(client):
    client.command("auth", "status")


@feature("CLI", "session export-trace")
def _(client):
    client.saved  # noqa: B018
    with tempfile.TemporaryDirectory() as folder:
        client.command("session", "export-trace", client.session_id(), "--output", str(pathlib.Path(folder) / "t.pftrace"))


@feature("CLI", "billing usage, checkpoint-storage")
def _(client):
    end = this_hour()
    client.command("billing", "usage", *(one.strftime("%Y-%m-%dT%H:00:00Z") for one in (end - datetime.timedelta(hours=2), end)))
    client.command("billing", "checkpoint-storage")

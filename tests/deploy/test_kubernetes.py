"""Checks the objects of deploy/kubernetes against the schemas of the API, against each other, and against the programs."""

import re
import shutil
import subprocess

import pytest
import yaml

from kubernetes_objects import FOLDERS, KUBERNETES, ROOT, build
from test_deploy import check_query

SERVER, WORKER = "tuft-server", "tuft-worker"
CLIENT = {"tuft-client": "true"}
README = (KUBERNETES / "README.md").read_text()
# The oldest version of Kubernetes that the README names, and the newest one that has schemas in the package.
VERSIONS = ["1.31", "1.37"]


@pytest.fixture(params=FOLDERS)
def objects(request):
    return build(request.param)


@pytest.fixture
def base():
    return build("base")


def test_the_folders_are_those_that_the_readme_lists():
    assert set(re.findall(r"^\| `(base|overlays/\w+)/`", README, re.MULTILINE)) == set(FOLDERS)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_fits_the_schema_of_its_kind(objects, version):
    schemas = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed (pip)")
    assert len(objects) >= 12
    for one in objects:
        schemas.validate(one, version, strict=True)


@pytest.mark.parametrize("change", [{"replicas": "two"}, {"replica": 2}, {"serviceName": None}])
def test_the_schemas_refuse_what_is_wrong(base, change):
    schemas = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed (pip)")
    wrong = base.named("StatefulSet", WORKER)
    wrong["spec"] |= change
    with pytest.raises(schemas.ValidationError):
        schemas.validate(wrong, VERSIONS[0], strict=True)


def fits(selector, labels):
    return selector.get("matchLabels", {}).items() <= labels.items()


def test_every_selector_finds_its_pods(objects):
    kinds = {SERVER: objects.labels(SERVER), WORKER: objects.labels(WORKER)}
    expected = {"tuft-join": SERVER}
    for kind in ("StatefulSet", "PodDisruptionBudget", "NetworkPolicy", "Service"):
        for one in objects.of(kind):
            spec, name = one["spec"], one["metadata"]["name"]
            selector = {"matchLabels": spec["selector"]} if kind == "Service" else spec.get("podSelector") or spec["selector"]
            found = [pods for pods, labels in kinds.items() if fits(selector, labels)]
            assert found == [expected.get(name, name)], f"{kind} {name} selects {found}"
    (spread,) = objects.pod(WORKER)["topologySpreadConstraints"]
    assert spread["labelSelector"] == objects.named("StatefulSet", WORKER)["spec"]["selector"]


def test_every_port_is_the_one_of_the_configuration(objects):
    config = objects.config()
    ports = {"api": config["port"], "join": config["join"]["port"]}
    assert config["host"] == "0.0.0.0", "nothing outside of the pod could reach it"
    assert {one["name"]: one["containerPort"] for one in objects.container(SERVER)["ports"]} == ports
    for name, port in ((SERVER, "api"), ("tuft-join", "join")):
        (one,) = objects.named("Service", name)["spec"]["ports"]
        assert (one["port"], one["targetPort"]) == (ports[port], port), name
    assert objects.flags()["join"] == f"tuft-join:{ports['join']}"
    assert "ports" not in objects.container(WORKER)
    assert "ports" not in objects.named("Service", WORKER)["spec"]


def test_stateful_sets_name_services_that_exist(objects):
    for one in objects.of("StatefulSet"):
        assert objects.named("Service", one["spec"]["serviceName"])["spec"]["clusterIP"] == "None"


def test_probes_ask_for_a_page_that_needs_no_key(objects):
    routes = (ROOT / "src/api/handlers/routes.cc").read_text()
    container = objects.container(SERVER)
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container[probe]["httpGet"]
        assert asked["port"] == "api" and asked["scheme"] == ("HTTPS" if "tls" in objects.config() else "HTTP")
        assert re.search(rf'"{asked["path"]}",\s*\.handler = \w+,\s*(\.reads = true,\s*)?\.access = Access::kOpen', routes), asked
    assert not any(key.endswith("Probe") for key in objects.container(WORKER))


def reaches(objects, labels, namespace, name, port):
    """Whether a pod with `labels`, in the same namespace or in another with the labels `namespace`, reaches a port."""
    policy = objects.named("NetworkPolicy", name)["spec"]
    assert "Ingress" in policy["policyTypes"]
    for rule in policy["ingress"]:
        for peer in rule["from"]:
            here = fits(peer.get("namespaceSelector", {}), namespace) if "namespaceSelector" in peer else namespace == {}
            pods = "podSelector" not in peer or fits(peer["podSelector"], labels)
            if "ipBlock" not in peer and here and pods and port in [one["port"] for one in rule["ports"]]:
                return True
    return False


def test_the_network_lets_through_what_it_should(objects):
    config, worker = objects.config(), objects.labels(WORKER)
    api, join = config["port"], config["join"]["port"]
    assert reaches(objects, worker, {}, SERVER, join)
    assert reaches(objects, CLIENT, {}, SERVER, api)
    assert reaches(objects, {}, CLIENT, SERVER, api)
    for labels, namespace, port in [(worker, {}, api), (CLIENT, {}, join), ({}, CLIENT, join), ({}, {}, api), ({}, {}, join),
                                    (worker, {"other": "true"}, join), (CLIENT, {"other": "true"}, api)]:
        assert not reaches(objects, labels, namespace, SERVER, port), (labels, namespace, port)
    assert objects.named("NetworkPolicy", WORKER)["spec"]["ingress"] == []
    for name in (SERVER, WORKER):
        assert "Egress" in objects.named("NetworkPolicy", name)["spec"]["policyTypes"]


def leaves(objects, name):
    return {one["port"] for rule in objects.named("NetworkPolicy", name)["spec"]["egress"] for one in rule["ports"]}


def test_workers_reach_the_server_and_nothing_else(base):
    assert leaves(base, WORKER) == {base.config()["join"]["port"], 53} and leaves(base, SERVER) == set()


def test_the_collector_of_the_example_can_be_reached():
    objects = build("overlays/example")
    host, port = re.fullmatch(r"http://\w+\.(\w+):(\d+)", objects.config()["telemetry"]["otlp_endpoint"]).groups()
    for name in (SERVER, WORKER):
        assert {int(port), 53} <= leaves(objects, name)
        assert f"kubernetes.io/metadata.name': '{host}'" in str(objects.named("NetworkPolicy", name))


def secrets_of(objects):
    """Returns the keys of each Secret that a pod needs."""
    needed = {}
    for name in (SERVER, WORKER):
        mounts = {one["name"]: one["mountPath"] for one in objects.container(name)["volumeMounts"]}
        texts = objects.config_text() + str(objects.flags())
        for volume in objects.pod(name)["volumes"]:
            if "secret" not in volume:
                continue
            path = re.escape(mounts[volume["name"]])
            keys = set(re.findall(rf"{path}/([\w.]+)", texts))
            only = {item["key"] for item in volume["secret"].get("items", [])}
            assert keys and only <= keys, f"nobody reads the Secret {volume}"
            needed.setdefault(volume["secret"]["secretName"], set()).update(keys)
        for one in objects.container(name).get("env", []):
            if "secretKeyRef" in one.get("valueFrom", {}):
                reference = one["valueFrom"]["secretKeyRef"]
                needed.setdefault(reference["name"], set()).add(reference["key"])
                assert f"${{oc.env:{one['name']}}}" in objects.config_text(), one
    return needed


def test_secrets_are_those_that_the_readme_makes(objects, tmp_path):
    assert not objects.of("Secret"), "a Secret does not belong into a repository"
    for name in ("tls.crt", "tls.key", "ca.crt"):
        (tmp_path / name).write_text("text")
    (tmp_path / "users.yaml").write_text("tml-key-of-a-test: alice\n")
    # What a Secret of this type must contain is checked by kubectl, the certificate itself by the server.
    made = {}
    for command in re.findall(r"^kubectl create secret .*$", README, re.MULTILINE):
        dry = f"{command} --dry-run=client -o yaml"
        ran = subprocess.run(["bash", "-ec", dry], cwd=tmp_path, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        secret = yaml.safe_load(ran.stdout)
        made[secret["metadata"]["name"]] = set(secret["data"])
    assert made == secrets_of(objects)


def test_the_private_key_is_not_in_a_worker(objects):
    (volume,) = [one for one in objects.pod(WORKER)["volumes"] if one.get("secret", {}).get("secretName") == "tuft-tls"]
    assert volume["secret"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}]


def mounted(objects, name):
    """Returns the volume of each mount path, and whether it is read-only. All of them must exist."""
    pod = objects.pod(name)
    volumes = {one["name"]: one for one in pod["volumes"]}
    for claim in objects.named("StatefulSet", name)["spec"].get("volumeClaimTemplates", []):
        volumes[claim["metadata"]["name"]] = claim
    for volume in volumes.values():
        if "persistentVolumeClaim" in volume:
            objects.named("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])
        if "configMap" in volume:
            objects.named("ConfigMap", volume["configMap"]["name"])
    mounts = objects.container(name)["volumeMounts"]
    assert {one["name"] for one in mounts} == set(volumes)
    return {one["mountPath"]: (volumes[one["name"]], one.get("readOnly", False)) for one in mounts}


def test_every_path_is_on_a_volume(objects):
    config, flags = objects.config(), objects.flags()
    of_server, of_worker = mounted(objects, SERVER), mounted(objects, WORKER)
    (model,) = config["supported_models"]
    read = [model["model_path"], config["authorized_users_file"], config["join"]["token_file"], *config["tls"].values()]
    home = {one["name"]: one for one in objects.container(SERVER)["env"]}["TUFT_HOME"]["value"]
    for mounts, paths, read_only in (
        (of_server, [*read, objects.container(SERVER)["args"][-1]], True),
        (of_server, [config["checkpoint_dir"], home], False),
        (of_worker, [flags["model-path"], flags["join-ca"], flags["join-token-file"]], True),
        (of_worker, [config["checkpoint_dir"], flags["page-directory"], "/tmp"], False),
    ):
        for path in paths:
            (found,) = [one for mount, (_, one) in mounts.items() if path == mount or path.startswith(mount + "/")]
            assert found == read_only, path
    shared = config["checkpoint_dir"]
    assert of_server[shared] == of_worker[shared]
    claim = objects.named("PersistentVolumeClaim", of_server[shared][0]["persistentVolumeClaim"]["claimName"])
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]


def test_pages_fit_into_their_volume(objects):
    units = {"Gi": 2**30}
    pages, _ = mounted(objects, WORKER)[objects.flags()["page-directory"]]
    size = re.fullmatch(r"(\d+)(Gi)", pages["emptyDir"]["sizeLimit"])
    assert objects.config()["supported_models"][0]["adapter_page_bytes"] < int(size[1]) * units[size[2]]


def test_a_worker_has_the_time_that_it_needs_to_end(objects):
    source = (ROOT / "src/app/tuft_worker/worker_process.h").read_text()
    ending = int(re.search(r"kEndGrace = (\d+) \* kMillisecond", source).group(1)) / 1000
    assert objects.pod(WORKER)["terminationGracePeriodSeconds"] > int(objects.flags()["drain-seconds"]) + ending
    assert objects.pod(SERVER)["terminationGracePeriodSeconds"] > 5


def test_pods_may_do_little(objects):
    for name in (SERVER, WORKER):
        pod, container = objects.pod(name), objects.container(name)
        assert pod["automountServiceAccountToken"] is False and pod["enableServiceLinks"] is False
        assert pod["securityContext"] == {"runAsNonRoot": True, "runAsUser": 10001, "runAsGroup": 10001, "fsGroup": 10001,
                                          "fsGroupChangePolicy": "OnRootMismatch", "seccompProfile": {"type": "RuntimeDefault"}}
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                                                "capabilities": {"drop": ["ALL"]}}
        assert {"hostNetwork", "hostPID", "hostIPC"}.isdisjoint(pod) and "memory" in container["resources"]["limits"]
        assert not any("hostPath" in one for one in pod["volumes"])


def test_server_and_workers_have_one_version(objects):
    tags = {objects.container(name)["image"].rpartition(":")[2] for name in (SERVER, WORKER)}
    assert tags == {(ROOT / "version.txt").read_text().strip()}


def test_the_worker_serves_the_model_of_the_configuration(objects):
    (model,) = objects.config()["supported_models"]
    assert model["worker"] == "joined"
    assert (objects.flags()["model-name"], objects.flags()["model-path"]) == (model["model_name"], model["model_path"])


def test_the_launcher_tells_the_worker_what_it_reads(objects):
    told = {one["name"] for one in objects.container(WORKER)["env"] if "fieldRef" in one.get("valueFrom", {})}
    assert told == set(re.findall(r'"(K8S_\w+)"', (ROOT / "src/app/tuft_worker/launcher.cc").read_text()))


def rules():
    return yaml.safe_load((KUBERNETES / "prometheus/adapter.yml").read_text())["rules"]


def test_all_pods_of_workers_serve(objects):
    (model,) = objects.config()["supported_models"]
    scalers = objects.of("HorizontalPodAutoscaler")
    pods = scalers[0]["spec"]["maxReplicas"] if scalers else objects.named("StatefulSet", WORKER)["spec"]["replicas"]
    assert pods == model["workers"] >= 2, "one more would stand by, and one less would leave a place empty"


def test_the_example_of_a_bound_is_that_of_the_autoscaler(base):
    objects = build("overlays/autoscaling")
    (bound,) = [model.pop("workers") for model in objects.config()["supported_models"]]
    assert f"`workers: {bound}`" in README
    config, of_base = objects.config(), base.config()
    for one in (config, of_base):
        del one["supported_models"][0]["workers"]
    assert config == of_base


def test_the_autoscaler_reads_metrics_that_the_adapter_gives():
    objects = build("overlays/autoscaling")
    (scaler,) = objects.of("HorizontalPodAutoscaler")
    target = scaler["spec"]["scaleTargetRef"]
    assert "replicas" not in objects.named(target["kind"], target["name"])["spec"]
    read = [metric["object"]["metric"]["name"] for metric in scaler["spec"]["metrics"]]
    assert sorted(read) == sorted(rule["name"]["as"] for rule in rules())
    for metric in scaler["spec"]["metrics"]:
        described = metric["object"]["describedObject"]
        objects.named(described["kind"], described["name"])


def test_the_autoscaler_ends_a_worker_only_when_the_one_before_it_has_ended():
    objects = build("overlays/autoscaling")
    (scaler,) = objects.of("HorizontalPodAutoscaler")
    (policy,) = scaler["spec"]["behavior"]["scaleDown"]["policies"]
    assert policy["type"] == "Pods" and policy["value"] == 1
    assert policy["periodSeconds"] > objects.pod(WORKER)["terminationGracePeriodSeconds"]
    assert scaler["spec"]["minReplicas"] == build("base").named("StatefulSet", WORKER)["spec"]["replicas"]


def test_only_the_overlay_of_that_name_has_an_autoscaler():
    having = [folder for folder in FOLDERS if build(folder).of("HorizontalPodAutoscaler")]
    assert having == ["overlays/autoscaling"]


def promtool(*arguments):
    if not shutil.which("promtool"):
        pytest.skip("promtool is not installed (Debian: prometheus)")
    checked = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def query_of(rule):
    """Returns the query as the adapter sends it."""
    return rule["metricsQuery"].replace("<<.GroupBy>>", "service").replace("<<.LabelMatchers>>", 'service="tuft-server"')


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["name"]["as"])
def test_the_rules_of_the_adapter_ask_for_metrics_that_exist(rule, base, tmp_path):
    query = query_of(rule)
    # The scrape job adds these two labels.
    check_query(re.sub(r"by \(service\)|,service=\"tuft-server\"", "", query))
    check_query(rule["seriesQuery"].replace(',namespace!="",service!=""', ""))
    names = [model["model_name"] for model in base.config()["supported_models"]]
    assert set(re.findall(r'base_model="([^"]*)"', query + rule["seriesQuery"])) <= set(names)
    assert set(rule["resources"]["overrides"]) == {"namespace", "service"}
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "x", "rules": [{"record": "y", "expr": query}]}]}))
    promtool("check", "rules", tmp_path / "rules.yml")


def test_the_load_is_what_is_at_the_workers_and_what_waits(tmp_path):
    labels = 'base_model="Qwen/Qwen3-0.6B",namespace="tuft",service="tuft-server",instance="tuft-server-0"'
    # In flight and waiting, every 40 s. Another kind, and another base model, do not count.
    written = {("training", labels): ([8, 16, 24], [0, 0, 6]), ("sampling", labels): ([64, 64, 320], [0, 2, 40]),
               ("training", labels.replace("0.6B", "8B")): ([99, 99, 99], [99, 99, 99])}
    series = [{"series": f'tuft_dispatch_{name}{{{of},kind="{kind}"}}', "values": " ".join(map(str, values))}
              for (kind, of), both in written.items() for name, values in zip(("in_flight", "waiting"), both, strict=True)]
    means = {"tuft_training_load_qwen3_0_6b": (8 + 16 + 24 + 6) / 3, "tuft_sampling_load_qwen3_0_6b": (64 + 66 + 360) / 3}
    (tmp_path / "none.yml").write_text("groups: []")
    asked = [{"expr": query_of(rule), "eval_time": "80s",
              "exp_samples": [{"labels": '{service="tuft-server"}', "value": means[rule["name"]["as"]]}]} for rule in rules()]
    test = {"rule_files": ["none.yml"], "evaluation_interval": "40s",
            "tests": [{"interval": "40s", "input_series": series, "promql_expr_test": asked}]}
    (tmp_path / "test.yml").write_text(yaml.safe_dump(test))
    promtool("test", "rules", tmp_path / "test.yml")


def test_the_scrape_job_finds_the_server(base, tmp_path):
    text = (KUBERNETES / "prometheus/scrape.yml").read_text()
    (job,) = yaml.safe_load(text)["scrape_configs"]
    keep, *added = job["relabel_configs"]
    service, port = keep["regex"].split(";")
    assert [one["name"] for one in base.named("Service", service)["spec"]["ports"]] == [port]
    assert job["tls_config"]["server_name"] == service and f"`{service}`" in README
    assert {one["target_label"] for one in added} == {"namespace", "service", "instance"}
    for name in ("ca.crt", "token"):
        (tmp_path / name).write_text("text")
    # Debian's promtool does not know this way to find targets.
    assert job.pop("kubernetes_sd_configs") == [{"role": "endpoints"}]
    job["static_configs"] = [{"targets": ["localhost:10610"]}]
    text = yaml.safe_dump({"scrape_configs": [job]}).replace("/etc/prometheus/tuft", str(tmp_path))
    (tmp_path / "prometheus.yml").write_text(text)
    promtool("check", "config", "--syntax-only", tmp_path / "prometheus.yml")

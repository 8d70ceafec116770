"""The manifests are what Kubernetes accepts, by its published schemas, and have no more rights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from zeus.agent._policy import parse_policy

yaml = pytest.importorskip("yaml")
kubernetes_validate = pytest.importorskip("kubernetes_validate")

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
VERSIONS = ("1.25", "1.31", "1.37")
DOCUMENTS: list[dict[str, Any]] = [
    document
    for path in sorted(FOLDER.glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
]


def _document(kind):
    (found,) = [each for each in DOCUMENTS if each["kind"] == kind]
    return found


def _containers():
    return {each["name"]: each for each in _pod()["containers"]}


def _pod():
    return _document("DaemonSet")["spec"]["template"]["spec"]


def test_there_is_a_manifest_for_each_part():
    kinds = [each["kind"] for each in DOCUMENTS]
    assert sorted(kinds) == ["ConfigMap", "DaemonSet", "Namespace", "Pod", "ServiceAccount"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda each: each["kind"])
def test_manifests_follow_the_published_schema(document, version):
    kubernetes_validate.validate(document, version, strict=True)


def test_the_schema_would_find_a_mistake():
    document = _document("DaemonSet")
    wrong = {**document, "spec": {**document["spec"], "hostPid": True}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_the_agent_has_one_capability_and_the_exporter_none():
    agent, exporter = (_containers()[name]["securityContext"] for name in ("agent", "exporter"))
    assert agent["capabilities"] == {"drop": ["ALL"], "add": ["SYS_ADMIN"]}
    assert exporter["capabilities"] == {"drop": ["ALL"]}
    assert (exporter["runAsNonRoot"], exporter["allowPrivilegeEscalation"]) == (True, False)
    for container in (agent, exporter):
        assert container["readOnlyRootFilesystem"] is True
        assert "privileged" not in container


def test_volumes_are_there_and_all_are_used():
    mounted = {mount["name"] for each in _containers().values() for mount in each["volumeMounts"]}
    assert mounted == {volume["name"] for volume in _pod()["volumes"]}


def test_pods_find_the_socket_where_clients_expect_it():
    from zeus.device._agent_place import SOCKET

    for pod in (_pod(), _document("Pod")["spec"]):
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for container in pod["containers"]:
            paths = {
                mount["mountPath"]: volumes[mount["name"]].get("hostPath", {}).get("path")
                for mount in container["volumeMounts"]
            }
            assert paths[str(SOCKET.parent)] == str(SOCKET.parent)


def test_the_policy_is_one_and_knows_the_exporter():
    policy = parse_policy(_document("ConfigMap")["data"]["agent.toml"])
    user = str(_containers()["exporter"]["securityContext"]["runAsUser"])
    exporter, pods = policy.rules
    assert (exporter.users, exporter.cpu_energy, exporter.knobs) == ({user}, True, {})
    assert (pods.pods, pods.cpu_energy) == (("*",), False)


def test_prometheus_is_sent_to_the_port_of_the_exporter():
    annotations = _document("DaemonSet")["spec"]["template"]["metadata"]["annotations"]
    exporter = _containers()["exporter"]
    port = annotations["prometheus.io/port"]
    assert int(port) == exporter["ports"][0]["containerPort"]
    assert exporter["args"][-1].endswith(f":{port}")

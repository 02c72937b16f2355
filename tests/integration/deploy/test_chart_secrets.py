"""The chart's Secret is made once: an upgrade finds it in the cluster and leaves it as it is."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import yaml

from tests.integration.deploy.chart import CHART, encoded
from tests.integration.deploy.programs import needs, run

pytestmark = needs("helm")

KEPT = {"token-secret": "kept 1", "metrics-token": "kept 2", "redis-password": "kept3"}

SECRETS = {"name": "secrets", "singularName": "secret", "namespaced": True, "kind": "Secret", "verbs": ["get"]}
CLUSTER: dict[str, Any] = {
    "/version": {"major": "1", "minor": "33", "gitVersion": "v1.33.0"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [SECRETS]},
}


@contextmanager
def a_cluster(**objects: Any) -> Iterator[str]:
    """As much of the API of Kubernetes as Helm asks when it looks for a Secret."""

    class Api(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = (CLUSTER | objects).get(self.path.partition("?")[0])
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(found or {"kind": "Status", "code": 404, "reason": "NotFound"}).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def rendered_secret(cluster: str) -> dict[str, str]:
    rendered = run(
        *("helm", "template", "demo", str(CHART), "--namespace", "apps", "--dry-run=server"),
        *("--kube-apiserver", cluster, "--show-only", "templates/relay-secret.yaml", "--disable-openapi-validation"),
        env=os.environ | {"KUBECONFIG": os.devnull},  # no cluster of whoever runs the tests
    )
    assert rendered.returncode == 0, rendered.stderr
    return dict(yaml.safe_load(rendered.stdout)["stringData"])


def test_an_upgrade_keeps_the_secrets() -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "demo-relay"}, "data": encoded(KEPT)}
    with a_cluster(**{"/api/v1/namespaces/apps/secrets/demo-relay": secret}) as cluster:
        found = rendered_secret(cluster)

    assert found == KEPT | {"redis-url": "redis://:kept3@demo-relay-redis:6379/0"}


def test_the_first_install_makes_long_secrets_of_its_own() -> None:
    with a_cluster() as cluster:
        one, other = rendered_secret(cluster), rendered_secret(cluster)

    assert all(len(value) >= 40 for value in one.values())
    assert all(one[name] != other[name] for name in one)

import base64
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytestmark = pytest.mark.cluster
GROUP = "echo.testbed.slicewise.dev"


@pytest.fixture
def extension(control_plane):
    """An aggregated API in this process that answers with the user it was asked by."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            resources = {"kind": "APIResourceList", "apiVersion": "v1", "resources": []}
            answer = {**resources, "groupVersion": f"{GROUP}/v1"}
            if self.path.endswith("/whoami"):
                answer = {"user": self.headers["X-Remote-User"]}
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    pair = control_plane.authority.issue("echo", hosts=["echo.default.svc"])
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.certificate, pair.key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def test_aggregated_api_in_the_test_process_is_asked_in_the_users_name(control_plane, extension):
    authority = control_plane.authority.certificate.certificate.read_bytes()
    service = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": extension}]}
    registration = {
        "group": GROUP,
        "version": "v1",
        "groupPriorityMinimum": 1000,
        "versionPriority": 10,
        "caBundle": base64.b64encode(authority).decode(),
        "service": {"namespace": "default", "name": "echo", "port": extension},
    }
    carol = control_plane.api(control_plane.kubeconfig("carol", ["system:masters"]))
    apis = "/apis/apiregistration.k8s.io/v1/apiservices"
    with control_plane.api() as api, carol:
        api.create(
            "/api/v1/namespaces/default/services", {"metadata": {"name": "echo"}, "spec": service}
        )
        api.create(apis, {"metadata": {"name": f"v1.{GROUP}"}, "spec": registration})
        api.wait_for(f"{apis}/v1.{GROUP}", available, 30)

        answer = carol.get(f"/apis/{GROUP}/v1/whoami")

        api.delete(f"{apis}/v1.{GROUP}")
        api.delete("/api/v1/namespaces/default/services/echo")
    assert answer == {"user": "carol"}


def available(service):
    conditions = service.get("status", {}).get("conditions", ())
    return any(c["type"] == "Available" and c["status"] == "True" for c in conditions)

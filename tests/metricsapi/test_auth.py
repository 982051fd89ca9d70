import asyncio
import json

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from metricsapi.scene import PREFIX, SECOND, Scene
from reports.values import node, pod
from slicewise.httpd import HttpRequest, HttpResponse, Peer, Upgrade
from slicewise.kube.access_reviews import User
from slicewise.kube.errors import LostError
from slicewise.metricsapi.agents import AgentRules
from slicewise.metricsapi.auth import NODE_CLAIM, RequestAuth, find_node, read_authorities

PODS = f"{PREFIX}/podresources"
UPGRADE = [("upgrade", "slicewise-reports/1"), ("connection", "Upgrade")]
AGENT = User("system:serviceaccount:kube-system:slicewise-agent")


def run(scene):
    return asyncio.run(asyncio.wait_for(scene, 60))


def ask(scene, path, method="GET", **facts):
    return run(scene.ask(path, method, **facts))


@pytest.fixture(scope="module")
def authorities():
    return {"clients": trustme.CA(), "proxies": trustme.CA(), "others": trustme.CA()}


def believe(authorities, **data):
    return read_authorities(
        {
            "client-ca-file": authorities["clients"].cert_pem.bytes().decode(),
            "requestheader-client-ca-file": authorities["proxies"].cert_pem.bytes().decode(),
            "requestheader-allowed-names": '["front-proxy-client"]',
            "requestheader-username-headers": '["X-Remote-User"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
            "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
            **data,
        }
    )


def peer(authority, name, *organizations):
    leaf = authority.issue_cert("a@example.com", common_name=name)
    certificate = x509.load_pem_x509_certificate(leaf.cert_chain_pems[0].bytes())
    return Peer(name, organizations, certificate.public_bytes(Encoding.DER))


def identify(believed, shown, *fields):
    request = HttpRequest(
        method="GET",
        path="/",
        query={},
        headers=dict(fields),
        body=b"",
        gone=asyncio.Event().wait,
        peer=shown,
        fields=fields,
    )

    async def asking():
        return await RequestAuth(Scene().judge, lambda: believed).identify(request)

    return run(asking())


HEADERS = (
    ("x-remote-user", "alice"),
    ("x-remote-group", "dev"),
    ("x-remote-group", "ops"),
    ("x-remote-extra-scopes%2fx", "one"),
)


def test_front_proxy_names_the_user_with_all_groups(authorities):
    found = identify(
        believe(authorities), peer(authorities["proxies"], "front-proxy-client"), *HEADERS
    )

    assert found == User("alice", groups=("dev", "ops"), extra=(("scopes/x", ("one",)),))


@pytest.mark.parametrize(
    ("authority", "name"),
    [
        pytest.param("proxies", "impostor", id="name-not-allowed"),
        pytest.param("others", "front-proxy-client", id="other-authority"),
        pytest.param(None, "", id="no-certificate"),
    ],
)
def test_headers_of_anybody_else_name_nobody(authorities, authority, name):
    shown = None if authority is None else peer(authorities[authority], name)

    assert identify(believe(authorities), shown, *HEADERS) is None


def test_users_certificate_names_its_user_and_its_headers_do_not(authorities):
    found = identify(believe(authorities), peer(authorities["clients"], "bob", "dev"), *HEADERS)

    assert found == User("bob", groups=("dev", "system:authenticated"))


def test_any_name_is_a_proxys_when_none_are_listed(authorities):
    believed = believe(authorities, **{"requestheader-allowed-names": "[]"})

    assert identify(believed, peer(authorities["proxies"], "any"), *HEADERS).name == "alice"


def test_unreadable_authorities_are_nobody():
    believed = read_authorities({"client-ca-file": "x", "requestheader-allowed-names": "{"})

    assert believed.clients == ()
    assert believed.proxy_names == frozenset()


@pytest.mark.parametrize("token", ["", "unknown"])
@pytest.mark.parametrize("path", ["/apis", PREFIX, PODS, f"{SECOND}/gpunodes"])
def test_strangers_are_told_nothing(token, path):
    assert ask(Scene(), path, token=token).status == 401


def test_discovery_is_for_everybody_who_is_known():
    scene = Scene()
    scene.judge.rights.clear()

    assert ask(scene, PREFIX).status == 200
    assert ask(scene, "/apis").status == 200
    assert ask(scene, "/apis/metrics.nvidia.com").status == 200


def test_user_without_the_right_is_forbidden_and_told_which():
    scene = Scene()
    scene.judge.rights = {("reader", "list")}

    assert ask(scene, PODS).status == 200
    refused = ask(scene, PODS, watch="true")

    assert refused.status == 403
    assert (
        'User "reader" cannot watch resource "podresources"' in json.loads(refused.body)["message"]
    )


def test_masters_need_not_be_asked_about():
    scene = Scene()
    scene.judge.users["root"] = User("root", groups=("system:masters",))

    assert ask(scene, PODS, token="root").status == 200
    assert scene.judge.asked == ["root"]


def test_answers_are_remembered_for_a_while():
    async def asking():
        scene = Scene()
        await asyncio.gather(*(scene.ask(PODS) for _ in range(20)))
        return scene.judge.asked

    assert run(asking()) == ["reader", ("reader", "list", "podresources")]


def test_silent_api_server_is_said_so():
    scene = Scene()

    async def lost(token):
        raise LostError("no answer")

    scene.judge.identify = lost

    assert ask(scene, PODS).status == 503


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/", 404),
        ("GET", "/openapi/v2", 404),
        ("GET", f"{PREFIX}/podresources/a", 404),
        ("GET", f"{PREFIX}/namespaces/a/podresources", 404),
        ("POST", f"{PREFIX}/schedule/filter", 404),
        ("POST", PODS, 405),
        ("DELETE", f"{PREFIX}/gpuinfos", 405),
        ("POST", "/health", 405),
        ("GET", "/hostgpuinfo", 405),
    ],
)
def test_paths_and_methods_that_are_not_served(method, path, code):
    answer = ask(Scene(), path, method)

    assert answer.status == code
    if code == 404:
        assert answer.body == b'{"code":404,"msg":"api not found"}\n'
        assert answer.headers == {"x-content-type-options": "nosniff"}


def test_schedulers_verbs_need_the_right_to_create_and_reach_the_scheduler():
    scene, asked = Scene(), []

    async def scheduler(request):
        asked.append(request.path)
        return HttpResponse(200, b"[]")

    scene.api.serve_scheduler(scheduler)
    path = f"{PREFIX}/schedule/filter"

    kind = [("content-type", "application/json")]
    assert ask(scene, path, "POST", headers=kind).status == 200
    scene = Scene()
    scene.api.serve_scheduler(scheduler)
    scene.judge.rights.clear()
    assert ask(scene, path, "POST", headers=kind).status == 403
    assert ask(scene, path, "POST").status == 415
    assert asked == [path]


@pytest.mark.parametrize(
    ("user", "node"),
    [
        (User("system:node:n1", groups=("system:nodes",)), "n1"),
        (User("system:node:n1"), None),
        (User("system:node:", groups=("system:nodes",)), None),
        (User("agent", extra=((NODE_CLAIM, ("n1",)),)), "n1"),
        (User("agent", extra=((NODE_CLAIM, ("n1", "n2")),)), None),
        (User("agent", extra=((NODE_CLAIM, ("",)),)), None),
        (User("agent"), None),
    ],
)
def test_credentials_say_for_which_node_an_agent_speaks(user, node):
    assert find_node(user) == node


@pytest.mark.parametrize(
    ("user", "rules", "code"),
    [
        pytest.param(None, AgentRules(), 401, id="stranger"),
        pytest.param(None, AgentRules(admit_unknown=True), 401, id="stranger-among-old-agents"),
        pytest.param(User("agent", extra=((NODE_CLAIM, ("n2",)),)), AgentRules(), 403, id="other"),
        pytest.param(User("nobody"), AgentRules(), 403, id="no-right"),
        pytest.param(User("agent"), AgentRules(), 403, id="no-node"),
        pytest.param(User("agent"), AgentRules(admit_unknown=True), 403, id="no-node-among-old"),
        pytest.param(User("agent", extra=((NODE_CLAIM, ("n1",)),)), AgentRules(), None, id="own"),
    ],
)
def test_agent_is_connected_for_its_own_node_alone(user, rules, code):
    scene = Scene(rules=rules)
    scene.judge.users["t"] = user
    scene.judge.rights.add(("agent", "create"))

    answer = ask(scene, "/reports", token="t", headers=UPGRADE, node="n1")

    if code is None:
        assert isinstance(answer, Upgrade)
    else:
        assert answer.status == code


def test_reports_without_an_upgrade_are_told_to_upgrade():
    assert ask(Scene(), "/reports", node="n1").status == 426


def test_thousand_agents_of_one_account_need_one_answer_about_their_rights():
    async def connecting():
        scene = Scene()
        scene.judge.rights.add((AGENT.name, "create"))
        for at in range(50):
            extra = ((NODE_CLAIM, (f"n{at}",)), ("credential", (str(at),)))
            scene.judge.users[f"t{at}"] = User(AGENT.name, extra=extra)
            await scene.ask("/reports", token=f"t{at}", headers=UPGRADE, node=f"n{at}")
        return [asked for asked in scene.judge.asked if isinstance(asked, tuple)]

    assert run(connecting()) == [(AGENT.name, "create", "reports")]


def old(scene, path, message, **facts):
    return ask(scene, path, "POST", body=json.dumps(message).encode(), **facts)


def old_scene():
    return Scene(rules=AgentRules(admit_unknown=True))


INVENTORY = {
    "device_node": "n1",
    "device_infos": {
        "GPU-a": {"device_id": "GPU-a", "device_model": "Tesla T4", "device_brand": "BRAND_TESLA"},
        "GPU-b": {"device_id": "GPU-b", "device_model": "Tesla T4", "device_brand": "BRAND_TESLA"},
    },
    "device_models": {"tesla t4": {"GPU-a": {}, "GPU-b": {}}},
}


def old_pod(name, *ids, resource="nvidia.com/gpu"):
    devices = [{"resource_name": resource, "device_ids": [each]} for each in ids]
    shown = [{"device_id": each, "device_model": "Tesla T4"} for each in ids[:1]]
    return {
        "name": name,
        "namespace": "ml",
        "containers": [{"name": "main", "devices": devices}],
        "containers_device": [{"container_name": "main", "device_info": shown}],
    }


def test_old_agents_calls_make_the_same_documents():
    scene = old_scene()
    ask(scene, "/health", token="", node="n1")
    old(scene, "/hostgpuinfo", INVENTORY, token="")
    sync = [old_pod("a", "GPU-a", "GPU-b")]
    old(scene, "/podresources", {"PodResourcesSYNC": sync, "NodeName": "n1"}, token="")

    pods = json.loads(ask(scene, PODS).body)["items"]
    nodes = json.loads(ask(scene, f"{PREFIX}/gpuinfos").body)["items"]

    infos = pods[0]["spec"]["containers_device"][0]["device_info"]
    assert [info["device_id"] for info in infos] == ["GPU-a", "GPU-b"]
    assert nodes[0]["spec"]["device_busy"] == ["GPU-a", "GPU-b"]
    assert nodes[0]["status"]["node_health"] == "True"


def test_old_agents_deletion_of_one_pod_leaves_the_others():
    scene = old_scene()
    sync = [old_pod("a", "GPU-a"), old_pod("b", "GPU-b")]
    old(scene, "/podresources", {"PodResourcesSYNC": sync, "NodeName": "n1"}, token="")
    gone = {"PodResourcesSYNC": [], "PodResourcesDEL": [old_pod("a")], "NodeName": "n1"}
    old(scene, "/podresources", gone, token="")

    assert [each.pod.key for each in scene.registry.pods()] == ["ml/b"]


def test_old_agents_full_set_drops_what_it_lacks():
    scene = old_scene()
    for names in (["a", "b"], ["b"]):
        sync = [old_pod(name, "GPU-a::1") for name in names]
        old(scene, "/podresources", {"PodResourcesSYNC": sync, "NodeName": "n1"}, token="")

    assert [each.pod.key for each in scene.registry.pods()] == ["ml/b"]
    assert scene.registry.report("n1").busy == {"GPU-a"}


def test_devices_of_other_plugins_are_not_busy_gpus():
    scene = old_scene()
    pods = [old_pod("nic", resource="rdma/hca")]
    pods[0]["containers"][0]["devices"] = [{"resource_name": "rdma/hca", "device_ids": ["x"]}]
    old(scene, "/podresources", {"PodResourcesSYNC": pods, "NodeName": "n1"}, token="")

    assert scene.registry.report("n1").busy == set()


@pytest.mark.parametrize("path", ["/hostgpuinfo", "/podresources"])
def test_old_agents_nonsense_is_answered_with_success_and_changes_nothing(path):
    scene = old_scene()
    answer = ask(scene, path, "POST", token="", body=b"{nonsense")

    assert answer.status == 200
    assert scene.registry.records == {}


def test_old_agent_without_credentials_is_refused_unless_admitted():
    scene = Scene()

    assert old(scene, "/hostgpuinfo", INVENTORY, token="").status == 401
    assert ask(scene, "/health", token="", node="n1").status == 200
    assert scene.registry.records == {}


def test_probe_is_nobodys_heartbeat():
    scene = old_scene()

    assert ask(scene, "/health", token="").status == 200
    assert scene.registry.records == {}


def test_report_over_a_connection_beats_nothing_of_other_nodes():
    scene = Scene()
    scene.tell(node("n1", pods=[pod("a")]))
    scene.tell(node("n2", pods=[pod("b")]))

    assert {each.pod.key for each in scene.registry.pods()} == {"ml/a", "ml/b"}

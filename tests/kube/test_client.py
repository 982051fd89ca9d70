import asyncio
import base64
import json
import os
from datetime import UTC, datetime, timedelta

import pytest
import trustme

from conformance.bodies import pod
from kube.lines import client
from slicewise.httpd import ServerSettings, Tls, json_response
from slicewise.kube.client import Call
from slicewise.kube.credentials import Access, CommandToken, FileToken, read_in_cluster
from slicewise.kube.errors import AccessError, LostError, RefusedError, UnreachedError
from slicewise.kube.kubeconfig import find_access, read_kubeconfig
from slicewise.model.backoff import Backoff
from slicewise_playground.api.faults import InjectedFault
from slicewise_playground.threaded_server import ThreadedServer

LIST = Call("list", "pods", "/api/v1/pods")
PODS = "/api/v1/namespaces/default/pods"


def ask(url, call=LIST, **facts):
    async def once():
        async with client(url, **facts) as line:
            return await line.read(call), line.calls.counts

    return asyncio.run(once())


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(InjectedFault(code=500, times=3), id="500"),
        pytest.param(InjectedFault(code=503, times=3), id="503"),
        pytest.param(InjectedFault(code=429, times=3), id="429"),
        pytest.param(InjectedFault(action="cut", times=3), id="cut"),
        pytest.param(InjectedFault(action="hang", times=1), id="hang"),
    ],
)
def test_read_outlives_passing_failures(playground, fault):
    playground.faults.add(fault)

    body, _ = ask(playground.url, seconds=0.3)

    assert json.loads(body)["kind"] == "PodList"


def test_read_gives_up_after_its_attempts(playground):
    playground.faults.add(InjectedFault(code=500, times=None))

    with pytest.raises(RefusedError, match="500 InternalError"):
        ask(playground.url, attempts=3)


def test_refusal_is_not_tried_again(playground):
    playground.faults.add(InjectedFault(code=403))

    with pytest.raises(RefusedError, match="403"):
        ask(playground.url)


def test_retry_after_is_honoured(playground):
    playground.faults.add(InjectedFault(code=429, retry_after=3))
    slept = []

    async def note(seconds):
        slept.append(seconds)

    async def claim():
        async with client(playground.url, sleep=note) as line:
            # The pause never exceeds the back-off's own limit, which tests keep short.
            line.timing = type(line.timing)(backoff=Backoff(0.01, 5.0))
            await line.read(LIST)

    asyncio.run(claim())

    assert slept == [3]


def test_unreachable_server_is_told_from_a_lost_answer(playground):
    playground.faults.add(InjectedFault(action="hang", verb="create"))

    async def claim():
        async with client("http://127.0.0.1:9", attempts=1) as line:
            with pytest.raises(UnreachedError):
                await line.read(LIST)
        async with client(playground.url, seconds=0.2) as line:
            with pytest.raises(LostError):
                await line.send(Call("create", "pods", PODS), pod())

    asyncio.run(claim())


def test_write_is_sent_once_unless_throttled(playground):
    playground.faults.add(InjectedFault(verb="create", code=429, retry_after=0))
    playground.faults.add(InjectedFault(verb="create", code=500))

    async def claim():
        async with client(playground.url) as line:
            with pytest.raises(RefusedError, match="500"):
                await line.send(Call("create", "pods", PODS), pod())
            return line.calls.counts

    counts = asyncio.run(claim())

    assert counts == {("create", "pods", "429"): 1, ("create", "pods", "500"): 1}


def test_calls_are_counted_by_verb_resource_and_code(playground):
    playground.faults.add(InjectedFault(code=503))

    _, counts = ask(playground.url)

    assert counts == {("list", "pods", "503"): 1, ("list", "pods", "200"): 1}


async def echo(request):
    return json_response({"token": request.headers.get("authorization")})


def test_token_file_is_read_again_when_it_changes(tmp_path):
    path = tmp_path / "token"
    path.write_text("one\n")
    whoami = Call("get", "whoami", "/whoami")

    async def claim(url):
        async with client(Access(url, token=FileToken(path))) as line:
            first = await line.read(whoami)
            path.write_text("two\n")
            os.utime(path, ns=(1, 1))
            second = await line.read(whoami)
            path.unlink()
            return [json.loads(each)["token"] for each in (first, second, await line.read(whoami))]

    with ThreadedServer(echo) as server:
        assert asyncio.run(claim(server.url)) == ["Bearer one", "Bearer two", "Bearer two"]


def test_missing_token_file_is_named(tmp_path):
    with pytest.raises(AccessError, match=r"cannot read token .*nowhere"):
        asyncio.run(FileToken(tmp_path / "nowhere").read())


def test_command_is_run_again_when_its_token_runs_out(tmp_path):
    end = datetime(2026, 1, 1, tzinfo=UTC)
    script = tmp_path / "login"
    script.write_text(
        f"#!/bin/sh\necho x >> {tmp_path}/runs\n"
        'echo \'{"status":{"token":"\'$WHO\'","expirationTimestamp":"2026-01-01T00:00:00Z"}}\'\n'
    )
    script.chmod(0o700)
    now = [end - timedelta(hours=1)]
    token = CommandToken([str(script)], {"WHO": "me"}, "v1", lambda: now[0])

    async def claim():
        assert [await token.read(), await token.read()] == ["me", "me"]
        now[0] = end
        await token.read()

    asyncio.run(claim())

    assert (tmp_path / "runs").read_text().split() == ["x", "x"]


@pytest.mark.parametrize(
    ("text", "said"), [("exit 3", "ended with 3"), ("echo {}", "no ExecCredential")]
)
def test_command_that_gives_no_token_is_named(tmp_path, text, said):
    script = tmp_path / "login"
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o700)

    with pytest.raises(AccessError, match=said):
        asyncio.run(CommandToken([str(script)], {}, "v1", lambda: datetime.now(UTC)).read())


def test_service_account_of_the_pod_is_found(tmp_path):
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.crt")
    (tmp_path / "token").write_text("t")
    (tmp_path / "namespace").write_text("gpu\n")
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}

    access = read_in_cluster(tmp_path, environment)

    assert (access.server, access.namespace) == ("https://[fd00::1]:6443", "gpu")
    assert asyncio.run(access.token.read()) == "t"


def test_kubeconfig_of_the_playground_is_enough(playground, tmp_path):
    access = find_access(playground.write_kubeconfig(tmp_path / "config"))

    assert json.loads(ask(access)[0])["items"] == []


@pytest.mark.parametrize("inline", [True, False], ids=["inline", "files"])
def test_client_certificate_of_a_kubeconfig_is_shown(tmp_path, inline):
    ca = trustme.CA()
    server_pem, user = tmp_path / "server.pem", ca.issue_cert("alice@example.org")
    ca.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(server_pem)
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    user.private_key_pem.write_to_path(tmp_path / "user.key")
    user.cert_chain_pems[0].write_to_path(tmp_path / "user.pem")
    tls = Tls(server_pem, server_pem, tmp_path / "ca.pem", require_client=True)

    async def whoami(request):
        return json_response({"shown": request.peer is not None})

    with ThreadedServer(whoami, ServerSettings(tls=tls)) as server:
        path = write_config(tmp_path, server.url, inline)
        body, _ = ask(read_kubeconfig(path), Call("get", "whoami", "/"))

    assert json.loads(body) == {"shown": True}


def write_config(folder, url, inline):
    def part(key, name):
        content = (folder / name).read_bytes()
        return {f"{key}-data": base64.b64encode(content).decode()} if inline else {key: name}

    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [
            {"name": "k", "cluster": {"server": url, **part("certificate-authority", "ca.pem")}}
        ],
        "users": [
            {
                "name": "u",
                "user": {
                    **part("client-certificate", "user.pem"),
                    **part("client-key", "user.key"),
                },
            }
        ],
    }
    path = folder / "config"
    path.write_text(json.dumps(config))
    return path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "expected a kubeconfig"),
        ("a: [", "not YAML"),
        ("{}", "no current-context"),
        ("{current-context: x}", "no context 'x'"),
        (
            "{current-context: x, contexts: [{name: x, context: {cluster: k}}],"
            " clusters: [{name: k, cluster: {server: ftp://x}}]}",
            "expected an http or https address",
        ),
    ],
)
def test_unusable_kubeconfig_is_named_with_its_fault(tmp_path, text, said):
    path = tmp_path / "config"
    path.write_text(text)

    with pytest.raises(AccessError, match=said):
        read_kubeconfig(path)


def test_closed_client_leaves_no_connection_behind(playground):
    async def claim():
        async with client(playground.url) as line:
            request = asyncio.create_task(line.read(LIST))
            await line.read(LIST)
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)
            sockets = list(line._sockets)
        return [each.fileno() for each in sockets]

    fds = asyncio.run(claim())

    assert fds
    assert set(fds) == {-1}

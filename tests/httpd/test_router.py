import asyncio

import pytest

from slicewise.httpd import HttpRequest, HttpResponse, Router
from slicewise.httpd.router import OTHER


async def echo(request):
    return HttpResponse(200, repr((request.path, dict(request.parameters))).encode())


def request(path, method="GET"):
    return HttpRequest(method, path, {}, {}, b"", gone=asyncio.Event().wait)


def ask(router, path, method="GET"):
    answer = asyncio.run(router.handle(request(path, method)))
    return answer.status, answer.body.decode()


def build(**facts):
    router = Router(**facts)
    router.add("/", echo)
    router.add("/nodes", echo, ("POST",))
    router.add("/nodes/{name}", echo)
    return router


def test_path_goes_to_its_handler():
    assert ask(build(), "/") == (200, "('/', {})")


def test_parameter_is_handed_to_the_handler():
    assert ask(build(), "/nodes/a3") == (200, "('/nodes/a3', {'name': 'a3'})")


def test_head_is_answered_where_get_is():
    assert ask(build(), "/", "HEAD")[0] == 200


def test_wrong_method_is_told_which_are_right():
    answer = asyncio.run(build().handle(request("/nodes")))

    assert (answer.status, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("path", ["/pods", "/nodes/", "/nodes/a/b", "//nodes/a3", ""])
def test_unknown_path_is_not_found(path):
    assert ask(build(), path) == (404, "no such path\n")


@pytest.mark.parametrize("path", ["/nodes/a3", "//nodes/a3", "/nodes//a3/", "/nodes/a3//"])
def test_lenient_router_takes_repeated_slashes_for_one(path):
    match = build(lenient=True).match(request(path))

    assert (match.name, match.request.parameters) == ("/nodes", {"name": "a3"})


def test_route_is_named_by_its_path_without_the_parameter():
    router = build()

    assert router.match(request("/nodes/a3")).name == "/nodes"
    assert router.match(request("/pods")).name == OTHER
    assert router.paths == ("/", "/nodes", "/nodes/{name}")


def test_service_words_its_own_refusals():
    router = build(
        not_found=HttpResponse(404, b"{}"), wrong_method=HttpResponse(405, b"", headers={"x": "y"})
    )

    assert ask(router, "/pods") == (404, "{}")
    answer = asyncio.run(router.handle(request("/nodes")))
    assert dict(answer.headers) == {"x": "y", "allow": "POST"}

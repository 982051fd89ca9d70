import json
from urllib.parse import urlsplit

import pytest

import builders
from chaos.relay import Relay, address
from dashboard.showing import QUICK, Showing
from slicewise.dashboard.server import PageSettings
from slicewise.dashboard.usage import MeasuredGpu, MeasuredNode, MeasuredPod
from slicewise.dialects.shared.isolation import ISOLATION
from slicewise.model import IsolationTier, OfferedIsolation
from slicewise_playground.api.faults import InjectedFault

FOCUSED = "document.activeElement.dataset.node + ' ' + document.activeElement.dataset.at"


@pytest.fixture(scope="module")
def shown():
    nodes = [builders.node(f"n{at}", 2) for at in range(4)]
    with Showing(*nodes, builders.node("t4-0", 4, memory=15360, model="Tesla T4")) as showing:
        yield showing


def gpu(node, at, more=""):
    return f".gpu[data-node='{node}'][data-at='{at}']{more}"


def text(selector):
    return f"document.querySelector({json.dumps(selector)})?.textContent"


def count(selector):
    return f"document.querySelectorAll({json.dumps(selector)}).length"


def widths(selector):
    """How much of its bar each piece takes, in percent."""
    return (
        f"[...document.querySelectorAll({json.dumps(selector)})].map((each) =>"
        " Math.round(100 * (each.getBoundingClientRect().width + 0) /"
        " each.parentElement.getBoundingClientRect().width))"
    )


def test_every_gpu_is_drawn_with_its_model_and_share(shown, look):
    shown.place("half", "n0", cores=50, memory=10240)
    shown.place("fifth", "n0", cores=20, memory=10240)

    page = look(shown.url)
    page.wait(f"{count(gpu('n0', 0, ' .compute .piece'))} === 2")

    assert page.ask(count(".gpu")) == 12
    assert page.ask(text(".head[data-node='t4-0'] .kind")) == "4 × T4"
    assert sorted(page.ask(widths(gpu("n0", 0, " .compute .piece")))) == [20, 50]
    assert page.ask(widths(gpu("n0", 0, " .memory .piece"))) == [25, 25]
    assert page.ask(text(gpu("n0", 0, " .top span"))) == "70 · 50%"
    assert page.ask(text(gpu("n0", 1, " .top span"))) == "free"


def test_pod_appears_and_leaves_while_one_looks(shown, look):
    page = look(shown.url)
    page.wait(f"{count('.gpu')} === 12")
    assert page.ask(count("[data-pod='default/guest']")) == 0

    shown.place("guest", "n1", cores=40)
    guest = "[data-pod='default/guest']"
    page.wait(count(gpu("n1", 0, f" {guest}")) + " === 2")
    shown.playground.delete("pods", "guest", grace=0)

    page.wait(count(guest) + " === 0")
    assert page.ask(text(gpu("n1", 0, " .top span"))) == "free"


def test_pod_has_one_colour_on_every_gpu_and_at_every_visit(shown, look):
    shown.place("same", "t4-0", 0, cores=10, memory=1024)
    colours = (
        "[...document.querySelectorAll('[data-pod=\"default/same\"]')]"
        ".map((each) => getComputedStyle(each).backgroundColor)"
    )

    first = look(shown.url)
    first.wait(count("[data-pod='default/same']"))
    second = look(shown.url)
    second.wait(count("[data-pod='default/same']"))

    assert len({*first.ask(colours), *second.ask(colours)}) == 1


def test_waiting_pod_is_listed_with_its_reason_and_explained(shown, look):
    shown.add_pod("too-large", memory=60000)
    page = look(shown.url)
    button = "#waiting button[data-pod='default/too-large']"
    page.wait(count(button))

    assert page.ask(text(f"{button} .why")) == "5: No GPU is large enough"
    page.click(button)
    page.wait("!document.querySelector('#details').hidden")

    told = page.ask("document.querySelector('#details').innerText")
    assert "0 of 5 nodes can take it" in told
    assert "ask for 40960 MiB of each GPU instead of 60000" in told


def test_node_that_fails_is_told_in_words_and_gets_well(shown, look):
    page = look(shown.url)
    page.wait(f"{count('.gpu')} === 12")

    shown.fail("n3")
    page.wait(f"{text('.head[data-node=n3] .badge')} === 'not ready'")
    assert page.ask("document.querySelector('.head[data-node=n3]').ariaLabel").count("not ready")
    assert "not ready" in page.wait("document.querySelector('#totals .alarm')?.innerText")

    shown.fail("n3", status="True")
    page.wait(f"{count('.head[data-node=n3] .badge')} === 0")


def test_unhealthy_gpu_is_told_in_words(shown, look):
    name = "unhealthy-gpu-n2"
    data = {"metadata": {"name": name, "namespace": "kube-system"}, "data": {"gpus": "1"}}
    shown.playground.create("configmaps", data)
    page = look(shown.url)

    page.wait(f"{text(gpu('n2', 1, ' .top span'))} === 'unhealthy'")

    assert "unhealthy" in page.ask(f"document.querySelector({json.dumps(gpu('n2', 1))}).ariaLabel")
    shown.playground.delete("configmaps", name, namespace="kube-system")
    page.wait(f"{text(gpu('n2', 1, ' .top span'))} === 'free'")


def test_keyboard_reaches_every_gpu_and_its_details(shown, look):
    shown.place("keyed", "n1", 1, cores=25, memory=2048)
    page = look(shown.url)
    page.wait(f"{count(gpu('n1', 1, ' .piece'))} === 2")

    page.press("/")
    assert page.ask("document.activeElement.id") == "search"
    page.press("ArrowDown")
    assert page.ask(FOCUSED) == "n0 -1"
    page.press("ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight")
    assert page.ask(FOCUSED) == "n1 1"
    assert page.ask("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.press("Enter")
    page.wait("!document.querySelector('#details').hidden")
    assert "default/keyed" in page.ask("document.querySelector('#details').innerText")
    page.press("Escape")
    assert page.ask("document.querySelector('#details').hidden")
    assert page.ask(FOCUSED) == "n1 1"
    page.press("End")
    assert page.ask(FOCUSED) == "t4-0 1"


def test_focus_stays_on_a_gpu_that_changes(shown, look):
    page = look(shown.url)
    page.wait(f"{count('.gpu')} === 12")
    page.ask("document.querySelector('#search').focus()")
    page.press("ArrowDown", "End", "ArrowRight", "ArrowRight")
    assert page.ask(FOCUSED) == "t4-0 1"

    shown.place("under-focus", "t4-0", 1, cores=10, memory=512)
    page.wait(count(gpu("t4-0", 1, " [data-pod='default/under-focus']")))

    assert page.ask(FOCUSED) == "t4-0 1"


@pytest.mark.parametrize(
    ("words", "nodes"),
    [
        ("n1", ["n1"]),
        ("model:t4", ["t4-0"]),
        ("ns:research", ["n2"]),
        ("pod:sought", ["n2"]),
        ("is:free model:t4", ["t4-0"]),
        ("pod:nobody", []),
    ],
)
def test_search_finds_nodes_by_what_is_on_them(shown, look, words, nodes):
    with_pod = {each["metadata"]["name"] for each in shown.playground.objects("pods")}
    if "sought" not in with_pod:
        shown.playground.create("namespaces", {"metadata": {"name": "research"}})
        shown.place("sought", "n2", namespace="research")
    page = look(shown.url)
    page.wait(count("[data-pod='research/sought']"))

    page.ask("document.querySelector('#search').focus()")
    page.type(words)
    page.wait(f"{text('#count')} === '{len(nodes)} of 5 nodes'")

    found = page.ask("[...document.querySelectorAll('.row')].map((row) => row.dataset.node)")
    assert found == nodes


def test_page_asks_no_other_host_for_anything(shown, look):
    page = look(shown.url)
    page.wait(f"{count('.gpu')} === 12")
    page.click("#theme")
    page.click(gpu("n0", 0))

    hosts = {urlsplit(url).netloc for url in page.requests}

    assert hosts == {urlsplit(shown.url).netloc}
    assert len(page.requests) > 5


def test_page_goes_on_after_its_connection_was_lost(shown, look):
    relay = Relay(lambda: address(shown.url))
    relay.start()
    try:
        page = look(relay.url, forgive="Failed to load resource")
        page.wait(f"{count('.gpu')} === 12")
        # A mark on the page is gone if it was drawn again from the beginning.
        page.ask("document.querySelector('.row[data-node=n0]').dataset.kept = 'yes'")
        relay.silence()
        shown.place("missed", "n3", 1, cores=15)
        relay.restore()

        page.wait(count("[data-pod='default/missed']"))

        assert page.wait("document.querySelector('#state').textContent") == "live"
        assert page.ask("document.querySelector('.row[data-node=n0]').dataset.kept") == "yes"
    finally:
        relay.stop()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(1366, 768), (1024, 700), (1920, 1080)])
def test_nothing_is_cut_off_or_scrolls_sideways(shown, look, width, height, dark):
    page = look(shown.url, width=width, height=height, dark=dark)
    page.wait(f"{count('.gpu')} === 12")
    page.wait(count("#history svg"))

    assert page.ask("document.documentElement.scrollWidth") <= width
    assert page.ask("document.documentElement.scrollHeight") <= height
    over = (
        "[...document.querySelectorAll('header, #tools, #side, .row')]"
        ".filter((each) => each.scrollWidth > each.clientWidth + 1).map((each) => each.className)"
    )
    assert page.ask(over) == []
    assert page.ask("matchMedia('(prefers-color-scheme: dark)').matches") is dark


def test_text_stands_out_from_its_ground_in_both_themes(shown, look):
    """Contrast of at least 4.5 to 1, as WCAG asks of small text."""
    pairs = ("--ink --sheet", "--soft --sheet", "--soft --paper", "--alarm --alarm-paper",
             "--alarm --sheet", "--accent --sheet", "--healthy --sheet", "--ink --alarm-paper",
             "--soft --alarm-paper")  # fmt: skip
    script = """
      (([one, other]) => {
        const probe = document.body.appendChild(document.createElement("i"));
        const light = (name) => {
          probe.style.color = `var(${name})`;
          const parts = getComputedStyle(probe).color.match(/[0-9.]+/g).slice(0, 3);
          const [r, g, b] = parts.map((each) => each / 255)
            .map((each) => each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
          return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
        probe.remove();
        return (high + 0.05) / (low + 0.05);
      })"""
    for dark in (False, True):
        page = look(shown.url, dark=dark)
        for pair in pairs:
            contrast = page.ask(f"{script}({json.dumps(pair.split())})")
            assert contrast >= 4.5, (pair, dark, contrast)


class Measured:
    """Two GPUs in use, by nobody's measurement."""

    label = "simulated"

    async def read(self):
        pod = MeasuredPod("default/busy", "GPU-n0-0", 35, 2048)
        return {"n0": MeasuredNode((MeasuredGpu("GPU-n0-0", 35, 2048),), (pod,))}


def test_use_stands_beside_what_is_allocated_under_its_label(look):
    page_settings = PageSettings(intervals=QUICK)
    with Showing(builders.node("n0", 1), usage=Measured(), page_settings=page_settings) as showing:
        showing.place("busy", "n0", cores=60, memory=8192)
        page = look(showing.url)
        page.wait(f"{count(gpu('n0', 0, ' .used'))} === 2")
        page.wait(count(gpu("n0", 0, " .piece")))

        page.click(gpu("n0", 0))

        assert page.ask(text("#use-legend")).strip() == "in use (simulated)"
        told = page.wait("document.querySelector('#details').innerText")
        assert "in use (simulated) / held" in told
        assert "35 / 60%" in told
        assert page.ask(text(gpu("n0", 0, ".chosen .top b"))) == "0"
        assert page.ask(widths(gpu("n0", 0, " .used i")))[0] == 35


def test_isolation_is_a_column_and_what_keeps_a_pod_waiting(look):
    hook = OfferedIsolation((IsolationTier.HOOK,), (IsolationTier.HOOK,))
    gpus = [builders.gpu(at, uuid=f"GPU-n0-{at}", isolation=hook) for at in range(2)]
    with Showing(builders.node("n0", gpus)) as showing:
        showing.place("limited", "n0", isolation={"main": ["hook", "hook"]})
        showing.place("older", "n0")
        showing.place("all", "n0", gpu=1, cores=100, memory=40960)
        wish = {"annotations": {ISOLATION: "driver"}}
        showing.add_pod("strict", metadata=wish)
        page = look(showing.url)
        page.wait(count(gpu("n0", 1, " .piece")))
        page.click(".head[data-node='n0']")
        told = page.wait("document.querySelector('#details table')?.innerText")

        assert told.splitlines()[0].split()[-1] == "isolation"
        ends = {line.split()[0]: line.split()[-1] for line in told.splitlines()[1:]}
        assert ends == {
            "default/limited": "hook/hook",
            "default/older": "none",
            "default/all": "whole",
        }
        page.click(gpu("n0", 0))
        assert "isolation\nhook/hook" in page.wait("document.querySelector('#details').innerText")
        page.wait(f"{text('#waiting button')}?.includes('strict')")
        page.click("#waiting button")
        why = "document.querySelector('#details').innerText"
        page.wait(f"{why}.includes('Insufficient GPU isolation')")
        assert "needs memory isolation driver, gpu 0, 1 offer hook" in page.ask(why)


def test_restarted_server_is_found_again(look):
    with Showing(builders.node("n0", 1)) as showing:
        page = look(showing.url, forgive="Failed to load resource")
        page.wait(f"{count('.gpu')} === 1")
        port = int(showing.url.rpartition(":")[2])
        showing.stop_page()
        page.wait("document.querySelector('#state').dataset.state === 'lost'")
        showing.place("meanwhile", "n0")

        showing.start_page(port)

        page.wait(count("[data-pod='default/meanwhile']"))


@pytest.fixture(scope="module")
def guarded():
    with Showing(builders.node("n0", 1), auth="kubernetes") as showing:
        answers = showing.playground.answers
        answers.tokens |= {"good": {"username": "ann"}, "weak": {"username": "bob"}}
        answers.allow = lambda spec: spec["user"] == "ann"
        yield showing


def submit(page, token):
    page.wait("document.querySelector('#ask').open")
    page.ask("document.querySelector('#token').focus()")
    page.type(token)
    page.press("Enter")


def test_guarded_page_shows_nothing_without_a_token(guarded, browser):
    page = browser.open(guarded.url)
    page.wait("document.querySelector('#ask')?.open")

    assert page.ask(count(".row")) == 0
    assert "n0" not in page.ask("document.body.innerText")
    page.close()


def test_token_without_rights_is_asked_for_again_and_a_good_one_opens(guarded, browser):
    page = browser.open(guarded.url)
    submit(page, "weak")
    page.wait("document.querySelector('#ask-why').textContent.includes('not allowed')")

    submit(page, "good")
    page.wait(f"{count('.gpu')} === 1")

    assert page.ask("document.querySelector('#ask').open") is False
    guarded.add_pod("secret-pod", memory=90000)
    page.wait(count("#waiting button"))
    page.click("#waiting button")
    page.wait("document.querySelector('#details').innerText.includes('0 of 1 node')")
    page.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer nobody"}, 401),
        ({"Authorization": "Bearer weak"}, 403),
        ({"Authorization": "Bearer good"}, 200),
    ],
)
def test_explanations_need_a_token_as_well(guarded, headers, status):
    guarded.add_pod(f"asked-{status}-{len(headers)}-{len(str(headers))}")
    path = f"/api/explain?pod=default/asked-{status}-{len(headers)}-{len(str(headers))}"

    assert guarded.ask(path, headers=headers)[0] == status


def test_guarded_feed_is_refused_while_the_api_server_is_silent(guarded):
    guarded.playground.faults.add(InjectedFault(verb="create", resource="tokenreviews"))
    try:
        assert guarded.ask("/api/feed", headers={"Authorization": "Bearer new"})[0] == 503
    finally:
        guarded.playground.faults.clear()

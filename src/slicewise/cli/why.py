"""`slicewise why POD`: asks the extender why a pod is where it is, or nowhere."""

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import click

_FILE = click.Path(dir_okay=False, exists=True, path_type=Path)


@click.command()
@click.argument("pod")
@click.option("-n", "--namespace", default="default", show_default=True)
@click.option("--node", help="Only this node.")
@click.option("--url", default="http://127.0.0.1:3456", show_default=True, help="The extender.")
@click.option("--ca", type=_FILE, help="PEM authority of the extender's certificate.")
@click.option("--cert", type=_FILE, help="PEM client certificate, with its key.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as it came.")
def why(pod: str, namespace: str, node: str | None, url: str, **more: Any) -> None:
    """Say, per node and card, what POD lacks and the smallest change that would fit."""
    name = pod if "/" in pod else f"{namespace}/{pod}"
    query = {"pod": name, **({"node": node} if node else {})}
    answer = _fetch(f"{url.rstrip('/')}/explain?{urlencode(query)}", more["ca"], more["cert"])
    if more["as_json"]:
        click.echo(json.dumps(answer, indent=2))
        return
    for line in describe(answer):
        click.echo(line)


def describe(answer: dict[str, Any]) -> list[str]:
    """The answer, for people."""
    lines = [f"pod {answer['pod']} asks for {answer['asks'] or 'no GPU'}", answer["summary"]]
    if answer.get("node"):
        lines.append(f"it is on node {answer['node']}")
    best = answer.get("best")
    if best:
        cards = "; ".join(best["cards"])
        lines.append(f"best now: node {best['node']}, {cards} (policy {best['policy']})")
    change = answer.get("smallestChange")
    if change:
        lines.append(f"smallest change: {change['change']} (node {change['node']})")
    for node in answer["nodes"]:
        if node["fits"]:
            lines.append(f"  {node['node']}: fits")
            continue
        lines.append(f"  {node['node']}: {node.get('phrase', node.get('reason'))}")
        if node.get("detail"):
            lines.append(f"    {node['detail']}")
        lines += [
            f"    gpu {card['gpu']} ({card['model']}): lacks {', '.join(card['missing'])}"
            for card in node.get("cards", ())
            if card["missing"]
        ]
        lines += [f"    would fit: {change['text']}" for change in node.get("changes", ())[:2]]
    return lines


def _fetch(url: str, ca: Path | None, cert: Path | None) -> dict[str, Any]:
    context = None
    if url.startswith("https:"):
        context = ssl.create_default_context(cafile=None if ca is None else str(ca))
        if cert is not None:
            context.load_cert_chain(cert)
    try:
        with urllib.request.urlopen(url, timeout=30, context=context) as response:
            answer: dict[str, Any] = json.load(response)
    except urllib.error.HTTPError as error:
        raise click.ClickException(_read_error(error)) from error
    except (OSError, ValueError) as error:
        raise click.ClickException(f"cannot ask {url}: {error}; pass --url") from error
    return answer


def _read_error(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["error"])
    except (ValueError, KeyError, TypeError):
        return f"the extender answered {error.code}"

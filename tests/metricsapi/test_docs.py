import re
from pathlib import Path

import pytest
import yaml

from slicewise.cli.metrics_api import metrics_api
from slicewise.metricsapi.agents import HEALTH, HOLDINGS, INVENTORY
from slicewise.metricsapi.api_versions import API_VERSIONS, RELEASES
from slicewise.reports import PATH, PROTOCOL

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "metrics-api.md").read_text()
MANIFESTS = ROOT / "deploy" / "metrics-api.yaml"


def test_page_names_every_flag_and_no_other():
    told = set(re.findall(r"`(--[a-z.-]+)`", PAGE.split("## Flags")[1].split("##")[0]))
    hidden = {"--v", "--version", "--help"}
    known = {
        name
        for option in metrics_api.params
        for name in option.opts
        if name.startswith("--") and not getattr(option, "hidden", False)
    }

    assert told == known - hidden


@pytest.mark.parametrize("path", [PATH, HEALTH, INVENTORY, HOLDINGS, PROTOCOL])
def test_page_names_every_route_of_agents(path):
    assert path in PAGE


def test_manifests_register_every_group_and_grant_their_resources():
    documents = list(yaml.safe_load_all(MANIFESTS.read_text()))
    registered = {d["metadata"]["name"] for d in documents if d["kind"] == "APIService"}
    granted = {
        (group, resource)
        for d in documents
        if d["kind"] == "ClusterRole"
        for rule in d["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }

    assert registered == {f"{each.version}.{each.group}" for each in API_VERSIONS}
    assert {(p.group, r.name) for p in API_VERSIONS for r in p.resources} <= granted
    assert {(p.group, "schedule") for p in RELEASES} <= granted
    assert all("*" not in str(d.get("rules", "")) for d in documents)

"""What the API offers, in every form that kubectl, the aggregator and plain clients ask for.

Only what is served is offered: other controllers act on the verbs they find here.
"""

from typing import Any, Final

from slicewise.httpd import HttpRequest, HttpResponse, json_response
from slicewise.metricsapi.api_versions import API_VERSIONS, ApiVersion

AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def write_groups(request: HttpRequest) -> HttpResponse:
    """`/apis`: every group, with its resources for those who can read them so."""
    if _wants_aggregated(request.headers.get("accept", "")):
        response = json_response(
            {
                "kind": "APIGroupDiscoveryList",
                "apiVersion": "apidiscovery.k8s.io/v2",
                "metadata": {},
                "items": list(map(_describe, API_VERSIONS)),
            }
        )
        return HttpResponse(200, response.body, content_type=AGGREGATED)
    groups = list(map(_write_group, API_VERSIONS))
    return json_response({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})


def write_group(api_version: ApiVersion) -> HttpResponse:
    """`/apis/<group>`: the group and its one version."""
    return json_response({"kind": "APIGroup", "apiVersion": "v1", **_write_group(api_version)})


def write_resources(api_version: ApiVersion) -> HttpResponse:
    """`/apis/<group>/<version>`: the resources, as the original listed them."""
    return json_response(
        {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": api_version.name,
            "resources": [
                {
                    "name": each.name,
                    "singularName": each.singular,
                    "namespaced": False,
                    "kind": each.kind,
                    "verbs": each.verbs,
                }
                for each in api_version.resources
            ],
        }
    )


def _write_group(api_version: ApiVersion) -> dict[str, Any]:
    version = {"groupVersion": api_version.name, "version": api_version.version}
    return {"name": api_version.group, "versions": [version], "preferredVersion": version}


def _describe(api_version: ApiVersion) -> dict[str, Any]:
    group, number = api_version.group, api_version.version
    resources = [
        {
            "resource": each.name,
            "responseKind": {"group": group, "version": number, "kind": each.kind},
            "scope": "Cluster",
            "singularResource": each.singular,
            "verbs": each.verbs,
        }
        for each in api_version.resources
    ]
    version = {"version": number, "resources": resources, "freshness": "Current"}
    return {"metadata": {"name": group, "creationTimestamp": None}, "versions": [version]}


def _wants_aggregated(accept: str) -> bool:
    wanted = {"application/json", "as=apigroupdiscoverylist", "v=v2"}
    offers = accept.lower().split(",")
    return any(wanted <= {part.strip() for part in offer.split(";")} for offer in offers)

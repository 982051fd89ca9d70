"""Which view of an object a client accepts."""

from dataclasses import dataclass

from slicewise_playground.objects.errors import ApiError

TABLE = "Table"
PARTIAL = "PartialObjectMetadata"
PARTIAL_LIST = "PartialObjectMetadataList"
JSON_RANGES = frozenset({"application/json", "application/*", "*/*"})


@dataclass(frozen=True, slots=True)
class RequestedView:
    """The view to send: `shape` is empty for whole objects."""

    shape: str
    content_type: str


PLAIN = RequestedView("", "application/json")


def negotiate(accept: str) -> RequestedView:
    """The first view in an Accept header that the API can send, or 406."""
    if not accept:
        return PLAIN
    for part in accept.split(","):
        media, *rest = [word.strip() for word in part.split(";")]
        words = dict(word.partition("=")[::2] for word in rest)
        if media not in JSON_RANGES:
            continue
        shape = words.get("as", "")
        if shape == "":
            return PLAIN
        if shape in {TABLE, PARTIAL, PARTIAL_LIST} and words.get("g") == "meta.k8s.io":
            if words.get("v") != "v1":
                continue
            return RequestedView(TABLE if shape == TABLE else PARTIAL, "application/json")
    raise ApiError(
        406,
        "NotAcceptable",
        "only the following media types are accepted: application/json",
    )


def wants_aggregated(accept: str) -> bool:
    """Whether a client asks for discovery in one answer."""
    for part in accept.split(","):
        words = {word.strip() for word in part.split(";")}
        if {"application/json", "as=APIGroupDiscoveryList", "v=v2"} <= words:
            return True
    return False

"""The route /faults: what the Python API of faults does, for those who only have HTTP."""

from slicewise.httpd import HttpRequest, HttpResponse, decode_json, json_response
from slicewise_playground.api.faults import ANY, FaultInjector, read_fault
from slicewise_playground.api.watches import HistoryReader
from slicewise_playground.objects.store import ObjectStore


class FaultRoutes:
    """Puts faults in force and lifts them."""

    def __init__(
        self, store: ObjectStore, faults: FaultInjector, watchers: set[HistoryReader]
    ) -> None:
        """Act on one API."""
        self._store = store
        self._faults = faults
        self._watchers = watchers

    def answer(self, request: HttpRequest) -> HttpResponse:
        """Carry out one request under /faults."""
        try:
            return self._answer(request)
        except ValueError as error:
            return json_response({"error": str(error)}, 400)

    def _answer(self, request: HttpRequest) -> HttpResponse:
        """Carry out one request; what cannot be read raises ValueError."""
        step = request.path.removeprefix("/faults").strip("/")
        body = decode_json(request.body) if request.body else {}
        if step == "" and request.method == "GET":
            return json_response(self._faults.listed())
        if step == "" and request.method == "DELETE":
            self._faults.clear()
            return json_response(self._faults.listed())
        if request.method != "POST":
            return json_response({"error": f"{request.method}: expected GET, POST or DELETE"}, 405)
        if step == "":
            self._faults.add(read_fault(body))
        elif step == "drop-watches":
            return json_response({"dropped": self.drop_watches(abrupt=bool(body.get("abrupt")))})
        elif step == "expire":
            self.expire(as_status=bool(body.get("as_status")))
        elif step == "delay-events":
            self._faults.delay_events(
                float(body.get("seconds", 0)), str(body.get("resource") or ANY)
            )
        else:
            return json_response({"error": f"fault {step!r}: unknown"}, 404)
        return json_response(self._faults.listed())

    def drop_watches(self, *, abrupt: bool = False) -> int:
        """End all watches and say how many there were."""
        watchers = list(self._watchers)
        for watcher in watchers:
            watcher.end(abrupt=abrupt)
        return len(watchers)

    def expire(self, *, as_status: bool = False) -> None:
        """Forget the history, so that every older revision is answered 410."""
        self._faults.expired_as_status = as_status
        self._store.forget()

"""How an extender is put together."""

from slicewise.extender.run import ExtenderSettings, elect
from slicewise.kube.client import Client
from slicewise.kube.credentials import Access

LEASE = ("kube-system", "slicewise-extender")


def test_two_extenders_of_one_host_name_and_process_number_are_told_apart():
    client = Client(Access("http://127.0.0.1:1"))
    settings = ExtenderSettings(lease=LEASE)

    first, second = elect(client, settings), elect(client, settings)

    assert first.identity != second.identity


def test_without_a_lease_there_is_no_election():
    assert elect(Client(Access("http://127.0.0.1:1")), ExtenderSettings()) is None

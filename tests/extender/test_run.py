"""How an extender is put together."""

import pytest

from slicewise.extender.run import ExtenderSettings, elect
from slicewise.kube.client import Client
from slicewise.kube.credentials import Access


def test_two_extenders_of_one_host_name_and_process_number_are_told_apart():
    client = Client(Access("http://127.0.0.1:1"))
    settings = ExtenderSettings()

    first, second = elect(client, settings), elect(client, settings)

    assert first.identity != second.identity


@pytest.mark.parametrize(("elects", "seconds"), [(True, 15), (False, 5)])
def test_without_election_the_lease_is_shorter_and_others_are_not_expected(elects, seconds):
    client = Client(Access("http://127.0.0.1:1"))

    election = elect(client, ExtenderSettings(leader_elect=elects))

    assert (election.alone, election._timing.lease_seconds) == (not elects, seconds)

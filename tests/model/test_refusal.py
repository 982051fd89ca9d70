from slicewise.model import Reason, Refusal


def test_refusal_reads_as_phrase_and_detail():
    refusal = Refusal(Reason.MEMORY, "needs 8192 MiB on one GPU, most free is 6144 MiB on gpu 3")

    assert str(refusal) == (
        "Insufficient GPU memory: needs 8192 MiB on one GPU, most free is 6144 MiB on gpu 3"
    )


def test_codes_of_reasons_differ():
    assert len({reason.code for reason in Reason}) == len(Reason)


def test_eviction_helps_only_where_gpus_are_in_use():
    assert Reason.MEMORY.preemptible
    assert not Reason.TOO_SMALL.preemptible

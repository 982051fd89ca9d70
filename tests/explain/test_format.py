import pytest

import builders
from slicewise.explain.format import describe_request


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        pytest.param(
            builders.fraction(30, 4096), "c0: 30 percent and 4096 MiB of one GPU", id="a-part"
        ),
        pytest.param(builders.fraction(0, 4096), "c0: 4096 MiB of one GPU", id="memory-alone"),
        pytest.param(builders.fraction(30, 0), "c0: 30 percent of one GPU", id="compute-alone"),
        pytest.param(builders.whole(), "c0: a whole GPU", id="a-gpu"),
        pytest.param(builders.whole(6), "c0: 6 whole GPUs", id="gpus"),
        pytest.param(
            builders.request([builders.share(50, 8)] * 2 + [builders.share(20, 9)]),
            "c0: 50 percent and 8 MiB on each of 2 GPUs + 20 percent and 9 MiB of one GPU",
            id="several",
        ),
    ],
)
def test_request_is_told_in_words(request_, words):
    assert describe_request(request_) == words

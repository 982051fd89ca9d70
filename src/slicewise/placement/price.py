"""What a move costs the future, in GPUs: the default policy."""

import numpy as np

from slicewise.placement.ask import Ask
from slicewise.placement.tables import Floats


def price(ask: Ask) -> Floats:
    """Scores of rows, for whole cards or for no GPU."""
    return np.zeros(len(ask.view.rows))


def price_card(ask: Ask) -> Floats:
    """Scores of cards, for one share."""
    return np.zeros(ask.ok.shape)

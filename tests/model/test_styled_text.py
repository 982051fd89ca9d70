from slicewise.model.styled_text import align


def test_cells_are_as_wide_as_the_widest_of_their_block():
    assert align(["a\tb\tc", "long\tb\tc"]) == ["a     b  c", "long  b  c"]


def test_line_without_the_column_ends_its_block():
    assert align(["a\tx", "-", "long\tx"]) == ["a  x", "-", "long  x"]


def test_text_after_the_last_tab_widens_nothing():
    assert align(["a\tvery long", "b\tc\t"]) == ["a  very long", "b  c  "]


def test_blocks_of_later_columns_end_before_those_of_earlier():
    assert align(["a\tlong\t", "b\t", "c\td\t"]) == ["a  long  ", "b  ", "c  d  "]

from click.testing import CliRunner

from slicewise import __version__
from slicewise.cli.main import main


def test_version_names_the_program():
    result = CliRunner().invoke(main, ["--version"])

    assert result.output == f"slicewise, version {__version__}\n"

"""rich's console within our rule: what others have written is escaped, colours are ours."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from slicewise.model.styled_text import escape


class EscapingConsole(Console):
    """rich's console, which by itself hands control characters on."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text = segment.text
            if segment.control or text.isprintable():
                yield segment
            else:
                yield Segment(escape(text), segment.style)

    def write_lines(self, lines: Iterable[str]) -> None:
        """Print lines as they are, tabs included."""
        for line in lines:
            self.file.write(f"{escape(line)}\n")

"""The command of a task: words with replacement strings, as in GNU parallel.

    {}   the input                     {/}   its basename           {#}  its number, from 1
    {.}  without its extension         {//}  its directory          {/.} its basename without extension

A command of several words is executed as it is: an input is one word, or a part of one, whatever it contains. A command
that is a single word with blanks or shell metacharacters is passed to `sh`, and inputs are quoted for it.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable

from carico.errors import UsageError

STRINGS: dict[str, Callable[[str, int], str]] = {
    "{}": lambda text, _: text,
    "{.}": lambda text, _: _without_extension(text),
    "{/}": lambda text, _: os.path.basename(text),
    "{//}": lambda text, _: os.path.dirname(text) or ".",
    "{/.}": lambda text, _: _without_extension(os.path.basename(text)),
    "{#}": lambda _, number: str(number),
}
PATTERN = re.compile("|".join(re.escape(string) for string in sorted(STRINGS, key=len, reverse=True)))
# Others that GNU parallel replaces: positions, slots, Perl, and those of its --plus. ${1} belongs to the shell.
FOREIGN = re.compile(r"(?<!\$)\{(?:-?\d+[./]{0,4}|0?%|##|0#|=.*?=|\+[./]{1,3}|\.{2,3}|/\.{2,3})\}")
FOR_A_SHELL = re.compile(r"[\s;&|<>$`\"'*?()]")


class CommandTemplate:
    """
    >>> CommandTemplate(["gzip", "-k", "{}"]).argv("a b.txt", 1)
    ['gzip', '-k', 'a b.txt']
    >>> CommandTemplate(["echo {/.} > {.}.out"]).argv("x/a b.txt", 1)
    ['/bin/sh', '-c', "echo 'a b' > 'x/a b'.out"]
    >>> CommandTemplate(["echo"]).argv("last", 1)
    ['echo', 'last']
    """

    def __init__(self, words: list[str]) -> None:
        if not words or not words[0]:
            raise UsageError("no command; write it after the flags, e.g. carico run -- gzip {} ::: *.txt")
        for word in words:
            if foreign := FOREIGN.search(word):
                known = " ".join(STRINGS)
                raise UsageError(f"{foreign[0]} is a replacement string of GNU parallel only; known here: {known}")
        self._shell = len(words) == 1 and FOR_A_SHELL.search(words[0]) is not None
        self._words = words
        if not any(PATTERN.search(word) for word in words):
            self._words = [f"{words[0]} {{}}"] if self._shell else [*words, "{}"]

    def argv(self, text: str, number: int) -> list[str]:
        if "\0" in text:
            raise UsageError(f"input {number} holds a zero byte, which no command can be given: {text[:40]!r}")
        words = [self._filled(word, text, number) for word in self._words]
        return ["/bin/sh", "-c", words[0]] if self._shell else words

    def shown(self, text: str, number: int) -> str:
        """As it would be typed in a shell."""
        argv = self.argv(text, number)
        return argv[2] if self._shell else shlex.join(argv)

    def _filled(self, word: str, text: str, number: int) -> str:
        def value(match: re.Match[str]) -> str:
            found = STRINGS[match[0]](text, number)
            return shlex.quote(found) if self._shell else found

        return PATTERN.sub(value, word)


def _without_extension(text: str) -> str:
    """
    >>> _without_extension("a.b/c.tar.gz"), _without_extension("a.b/c")
    ('a.b/c.tar', 'a.b/c')
    """
    folder, name = os.path.split(text)
    stem = name.rpartition(".")[0] or name
    return os.path.join(folder, stem)

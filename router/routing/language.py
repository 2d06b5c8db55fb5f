"""Whether a question looks English. The heads, the planner and the embedder know no other language; others are searched as they
stand, and said to be unsupported.

Function words decide: a question of another Latin language holds more of that language's than of English. Other scripts show by
their letters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_WORD = re.compile(r"[^\W\d_]+")
_ENGLISH = frozenset(
    """the a an of to and in is are was were be it that this for on with as by at from how what which who when where why do does did
    can may must should my your our their there have has not or if we you i me us many much each per all show list give tell""".split()
)
_OTHERS: Mapping[str, frozenset[str]] = {
    "German": frozenset(
        """der die das den dem des ein eine einen einem einer und oder ist sind war wie was wer wo wann warum welche welcher welches
        viele viel nicht mit von zu zum zur im am auf für ich wir sie es muss kann darf gibt bei nach aus""".split()
    ),
    "French": frozenset(
        """le la les un une des du de et ou est sont était comment quel quelle quels quelles qui où quand pourquoi combien ne pas
        avec pour dans sur je nous vous il elle ils que quoi mon ma mes au aux ce cette faut puis""".split()
    ),
    "Spanish": frozenset(
        """el la los las un una unos de del y o es son era cómo como qué que cuál cuáles quién dónde cuándo cuántos cuántas cuánto
        no con para por en yo nosotros mi mis su sus al hay se""".split()
    ),
    "Italian": frozenset(
        """il lo la gli le un una uno di del della dei delle e o è sono era come che cosa quale quali chi dove quando quanti quante
        quanto non con per in su io noi mi mio mia al alla si""".split()
    ),
    "Portuguese": frozenset(
        """o os as um uma de do da dos das e ou é são era como que qual quais quem onde quando quantos quantas não com para por em
        no na nos nas eu nós meu minha ao há se""".split()
    ),
    "Dutch": frozenset(
        """de het een van en of is zijn was hoe wat welke wie waar wanneer waarom hoeveel niet met voor in op ik wij we mijn naar
        bij aan er kan moet mag uit""".split()
    ),
}
_FEWEST = 2


def is_foreign(text: str) -> bool:
    """True where the words are plainly of another language; a question of identifiers alone is of none."""
    words = [word.lower() for word in _WORD.findall(text[:1_000])]
    letters = "".join(words)
    if len(letters) >= _FEWEST and sum(ord(letter) > 0x24F for letter in letters) * 2 > len(letters):
        return True
    english = sum(word in _ENGLISH for word in words)
    return any((count := sum(word in known for word in words)) >= _FEWEST and count > english for known in _OTHERS.values())

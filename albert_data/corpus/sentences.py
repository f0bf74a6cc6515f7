"""Lines into sentences, by sentencex's rules and in a tenth of its time.

In: `Lines`. Out: the sentences' UTF-8, their offsets in bytes, and the lines' offsets in sentences.
The rules that most lines need are compiled: where stops stand, what quotes and parentheses hold together
(`line_reading`), what continues a sentence (`sentence_ends`). Which words can bear a stop inside a sentence is not
known there: sentencex is asked, once for each word, and for the few such words once for each pair with the next
word; the answers are kept (`word_answers`).
A line that holds more than that is odd and left to the caller, as are all lines of a language with rules of
its own, and of a sentencex that answers otherwise than these modules do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence, Sized
from itertools import compress, pairwise

import numpy as np

from albert_data.corpus.characters import QUOTES, Source, make_kinds
from albert_data.corpus.line_reading import Stops, make_stops
from albert_data.corpus.sentence_ends import find_stops, write
from albert_data.corpus.word_answers import ASK, BREAK, KEEP, UNSURE, make_answers
from albert_data.sharing import SharedLock

# Languages that sentencex segments by its default rules and lists of words.
LANGUAGES = frozenset(("en", "es", "fr", "ja", "ko", "nl", "pl", "pt", "sv", "tr", "vi", "zh", "zh-hans", "zh-hant"))

# What may stand before a word whose neighbour is as a key says: what reads as an adverbial (nothing, numbers, names)
# and what does not; letters, among them those that go with the next as in p. m.
_CONTEXTS = {
    "x": ("", "went "),
    "X": ("X ", "went X ", "went.X "),
    "x5": ("5 ", "went 5 ", "X 5 "),
    "X5": ("X5 ", "went X5 ", "went.X5 "),
    "x.": ("p. ", "went p. ", "z. ", "X.p. "),
    "X.": ("P. ", "went P. ", "Z. ", "went.Z. "),
}

# What tells apart the ways in which versions of sentencex, and languages, segment.
PROBES = """
One. Two! Three? Four... Five. six. 7 eight.9 Ten.Eleven|He said ... no. He said ... No. Wait ...what?|Well... I'm not
Oh... In time. Hm.. A boy. Hm... I’m here|What?! Yes!! Oh!? no. Stop !But no|Stop ! And go ? on then ! (Who) Is that
Mr. Smith met Dr. Jones, J. Brown and John B. Brown|I. He left. It was I. But she stayed. Vitamin C. Is good
At no. 5 St. James St. he stayed. Prof. X. Y. Zed and etc. And so on, e.g. this, i.e. that, cf. There. Nos. 5
It was 5 p.m. Tom woke|In the evening at 7 p.m. Tom ate. At 5 a. m. He did|He is in the U.S. Army|U.S. The army left
The U.S.S.R. Fell|An M.A. Student. 5 in. Long. Come in. Sit|A move 7.Bg5 and 3.5 and 3. Five and No. 3.x Yes. Of 2.Next
Yahoo! Is big. Yum! Brands. He cried Yahoo! and left. Whoa! Look|Janvier 5. Mai ist da. Den 5. Januar. Im 3. Mai
“Stay here.” He went|“Go!” he said. “Who? I.” “It is.” She. “No. Never,” he said|“Yes.” — he said. “Yes.” — He
He left. “Come here. Now|He left. ”Yes|He left.’ Then|He left.” ? No|«Oui. Non.» Il dit|«Oui. Non. »Alors|»Oui. Non.« Si
‘I can’t go. Not now.’ She left|‘Go.’ He can’t. Don’t. ’Tis. The boys’ own. James’s|‘I’ll. No’. Yes
"Stay. Here." He went|"Go!" he said. "Who? I." "It is." She said "no." , and left|He said "no". "Yes", he said|A ." , b"
He (who knows. Maybe.) left. (Who? He.) Yes|[Not. This.] But {this. One} and <that. One> too|(One (two. Or) four. Five)
He left (then. “Now.) Yes.” But|He “left (is. It.” No.) Yes|A) Then|(No. Yes|1. One. 2. Two|* One. * Two
今天天气很好。我们去看书！好吗？好。他说：“好。不好。”她说。（是。不是。）「好。」『好。坏。』是|《书。》好！”他。好……好
好。」好。好”。好！？好。。好|好。 好 。好.好.A好.a|1.好|x。y。5。Z｡好！ 好|好 ！a|That is it.. Then|It.; Then. Or., so
That's it. don't. He's Mr. O'Neill's|The 1. January. El 5. Enero|A. B. C. D|Fig. 3. Sec. 4 shows. Vol. II. Ch. IV. Ex. A
Gen. Lee. Sen. Lu|S. El Sr. Pérez. La Sra. Ana|M. Dupont. Mme. Curie|Dhr. Jansen. Bijv. Dit|Pan dr. Nowak. Ul. Nowa|A
$3.5 _Yes._ No. *Yes.* No — yes. No – Yes. It’s 50%. That © is. A/B. C/Mr. X. www.Example.Com is. No.; A—b|“A.” (b.) C
Été. Élan. Œuvre. ça. À la. Ñu. ¿Qué? ¡Sí! ¿No? Łódź. ż. Ж. ж. Α. α. No. é. No. É. Sí. ÍNDICE. 3. É|L'ora. L'art
"""


class Segmenter:
    """Segments lines by the rules of a language, and keeps what sentencex said of words.

    segment_odd: segments an odd line. What becomes of a line depends on nothing but the line.
    Threads may share one: they segment one after another.
    """

    def __init__(
        self, language: str, segment_odd: Callable[[str], list[str]], max_keys: int = 1 << 17, max_bytes: int = 1 << 22
    ) -> None:
        self._language, self._segment_odd = language, segment_odd
        self._answers, self._lock = make_answers(max_keys, max_bytes), SharedLock(self._forget)
        self.is_fast = language in LANGUAGES
        self.is_fast = self.is_fast and self._agrees()

    def segment(self, utf8: np.ndarray, line_offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sentences of lines, each with a line feed: utf8, sentence offsets in bytes, line offsets in sentences."""
        source = Source(utf8, line_offsets, make_kinds())
        with self._lock:
            stops = self.find_stops(source)
        bounds = np.flatnonzero(stops.is_odd)[:, None] + (0, 1)
        odd = [
            [sentence.encode() for sentence in self._segment_odd(utf8[begin : end - 1].tobytes().decode())]
            for begin, end in line_offsets[bounds].tolist()
        ]
        sentences = [sentence for line in odd for sentence in line]
        return write(
            source, stops, np.frombuffer(bytearray(b"".join(sentences)), np.uint8), _add_up(sentences), _add_up(odd)
        )

    def find_stops(self, source: Source) -> Stops:
        """What ends a sentence, and which lines are odd: all, where not fast."""
        num_lines, longest = len(source.line_offsets) - 1, int(np.diff(source.line_offsets).max(initial=0))
        room, max_stops, num_known = np.empty(5 * longest, np.int64), 0, int(self._answers.counts[0])
        stops, num_left = make_stops(0, num_lines), -1 if self.is_fast else 0
        while num_left != 0:
            if num_left < 0:
                max_stops = 4 * max_stops or longest + len(source.utf8) // 32
                stops = make_stops(max_stops, num_lines)
            else:
                num_known = self._learn(num_known)
            num_left = find_stops(source, stops, room, self._answers, num_left > 0)
        unsure = np.flatnonzero(stops.decisions[: stops.line_stops[-1]] == UNSURE)
        stops.is_odd[np.searchsorted(stops.line_stops, unsure, "right") - 1] = 1
        return stops

    def _learn(self, first: int) -> int:
        """Ask about the keys from a number on, and return the number of keys; forget all where there is no room."""
        answers = self._answers
        if first == answers.counts[0]:
            self._forget()
            return 0
        offsets = answers.key_offsets[: answers.counts[0] + 1][first:]
        data = answers.keys[offsets[0] : offsets[-1]].tobytes()
        bounds = pairwise((8 * (offsets - offsets[0])).tolist())
        keys = [data[begin:end].rstrip(b"\0").decode() for begin, end in bounds]
        answers.slots[2 * answers.key_slots[first : first + len(keys)] + 1] |= self._judge(keys)
        return first + len(keys)

    def _forget(self) -> None:
        self._answers.slots[:] = 0
        self._answers.counts[0] = 0

    def _judge(self, keys: list[str]) -> np.ndarray:
        """What is decided of each key; uint64."""
        judged, neighbours = np.empty(len(keys), np.uint64), [key[: key.find("\n") + 1] for key in keys]
        for neighbour in set(neighbours):
            is_here = np.array([other == neighbour for other in neighbours])
            group = list(compress(keys, is_here))
            judged[is_here] = self._judge_pairs(neighbour[:-1], group) if neighbour else self._judge_words(group)
        return judged

    def _judge_words(self, words: list[str]) -> np.ndarray:
        """Not enough is the answer of a single letter, which may be an initial."""
        texts = [f"{word}. x" for word in words]
        breaks = self._ask("5 ", texts, _add_up(texts)[1:] - 1)
        is_long = np.array([word[-2:-1] not in "./" for word in words], bool)
        return np.where(breaks & is_long, BREAK, ASK)

    def _judge_pairs(self, neighbour: str, keys: list[str]) -> np.ndarray:
        """The answers must agree, and are not enough beside a quote."""
        parts = [key.split("\n") for key in keys]
        texts = [word + following for _, word, following in parts]
        tails = [following.removeprefix(" ") for _, _, following in parts]
        middles = _add_up(texts)[1:] - np.array([len(tail) for tail in tails])
        breaks = np.array([self._ask(context, texts, middles) for context in _CONTEXTS[neighbour]])
        has_quote = np.array([not QUOTES.isdisjoint(key) for key in keys])
        is_unsure = has_quote | (breaks.any(axis=0) != breaks.all(axis=0))
        return np.where(is_unsure, UNSURE, np.where(breaks[0], BREAK, KEEP))

    def _ask(self, context: str, texts: list[str], middles: np.ndarray) -> np.ndarray:
        """Whether a sentence ends in the middle of each text after a context, asked about as paragraphs of one; bool.

        middles: int64, in the texts joined.
        """
        found = self._segment(context + f"\n\n{context}".join(texts))
        is_end = np.zeros(sum(map(len, texts)) + len(context) * len(texts) + 1, bool)
        is_end[_add_up([sentence for sentence in found if sentence != "\n\n"])] = True
        return is_end[middles + len(context) * np.arange(1, len(texts) + 1)]

    def _segment(self, text: str) -> list[str]:
        from sentencex import segment

        sentences: list[str] = segment(self._language, text)
        return sentences

    def _agrees(self) -> bool:
        """Whether sentencex segments the probes as this module does, those that are odd aside."""
        probes = re.split("[|\n]", PROBES.strip())
        data = [f"{probe}\n".encode() for probe in probes]
        source = Source(np.array(list(b"".join(data)), np.uint8), _add_up(data), make_kinds())
        stops = self.find_stops(source)
        utf8, offsets, lines = write(
            source, stops, np.zeros(0, np.uint8), _add_up(()), np.zeros(len(data) + 1, np.int64)
        )
        found = [str(utf8[begin:end].data, "utf-8") for begin, end in pairwise(offsets.tolist())]
        return all(
            is_odd or found[begin:end] == [sentence.strip() for sentence in self._segment(probe)]
            for probe, is_odd, (begin, end) in zip(probes, stops.is_odd.tolist(), pairwise(lines.tolist()), strict=True)
        )


def _add_up(parts: Sequence[Sized]) -> np.ndarray:
    return np.concatenate(([0], np.cumsum([len(part) for part in parts], dtype=np.int64)))

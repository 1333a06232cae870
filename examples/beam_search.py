"""A beam search as a `while_loop`: the most probable sentences of a small language.

The language is a Markov chain of few words, so every sentence can be looked at, and the beam must
find the best, which the most probable next word doesn't lead to.
"""

from __future__ import annotations

import itertools

import lucid

END = 0
WORDS = 5
LONGEST = 6
BEAMS = 6


def language() -> lucid.Tensor:
    """Return log-probabilities of the next word: f32[WORDS, WORDS], a row for each word before."""
    lucid.manual_seed(3)
    return lucid.log_softmax(lucid.randn(WORDS, WORDS) * 1.5, dim=1)


def beam_search(table: lucid.Tensor, first: int) -> tuple[lucid.Tensor, lucid.Tensor]:
    """Return the beams' words, i64[BEAMS, LONGEST], and scores, f32[BEAMS], from the best down.

    A sentence that has ended goes on with END for nothing. The loop ends with the last sentence.
    """

    def goes_on(at, words, scores):
        return (at < LONGEST) & (words[:, at - 1] != END).any()

    def step(at, words, scores):
        last = words[:, at - 1]
        stays = lucid.full((WORDS,), -lucid.inf)
        stays[END] = 0.0
        following = lucid.where((last == END)[:, None], stays, table[last])
        scores, places = (scores[:, None] + following).reshape(-1).topk(BEAMS)
        words = words[places // WORDS].clone()
        words[:, at] = places % WORDS
        return at + 1, words, scores

    words = lucid.zeros(BEAMS, LONGEST, dtype=lucid.int64)
    words[:, 0] = first
    scores = lucid.full((BEAMS,), -lucid.inf)
    scores[0] = 0.0  # the others would find the same
    _, words, scores = lucid.while_loop(goes_on, step, (lucid.tensor(1), words, scores))
    return words, scores


def best_of_all(table: lucid.Tensor, first: int) -> tuple[list[int], float]:
    """Look at every sentence."""
    rows, best = table.tolist(), ([], -float("inf"))
    for words in itertools.product(range(WORDS), repeat=LONGEST - 1):
        score, before = 0.0, first
        for word in words:
            if before == END:
                score += 0.0 if word == END else -float("inf")
            else:
                score += rows[before][word]
            before = word
        if score > best[1]:
            best = ([first, *words], score)
    return best


def main() -> None:
    """Search, compiled, and compare with the best of all sentences."""
    table = language()
    words, scores = lucid.compile(beam_search)(table, 2)
    expected, score = best_of_all(table, 2)
    assert words[0].tolist() == expected and abs(scores[0].item() - score) < 1e-4
    for sentence, value in zip(words[:3].tolist(), scores[:3].tolist(), strict=True):
        print(f"{value:8.4f}  {sentence}")


if __name__ == "__main__":
    main()

from __future__ import annotations

import random
from itertools import islice

import pytest
from engine_fixture import random_games

from rlvr_chess.questions.grammar import (
    Profile,
    environment_text,
    parse_environment,
    parse_policy,
    policy_text_of,
)
from rlvr_chess.questions.transition import legal_moves, transition
from rlvr_chess.rewards.environment import environment_reward
from rlvr_chess.rewards.policy import policy_reward
from rlvr_chess.values import ActionValues

COUNT = 10_000
ALPHABET = "abcdefgh12345678 .-#+/0wKQkqrnbpEBM:\n\t\r\x00\x85\xa0　٣３é"


def positions(count: int) -> list[str]:
    """Positions of random games in which the side to move has six moves at least."""
    games = random_games(random.Random(11), range(8, 90))
    return [*islice((b.fen() for b in games if b.legal_moves.count() > 5), count)]


def scored(fen: str) -> ActionValues:
    """Made-up values of all legal moves: centipawns and mates, best first."""
    rng = random.Random(fen)
    kinds = [("cp", rng.randrange(-900, 900)) for _ in legal_moves(fen)]
    kinds[0], kinds[-1] = ("mate", rng.randrange(1, 9)), ("mate", -rng.randrange(1, 9))
    pairs = sorted(kinds, key=lambda pair: (pair[0] == "mate") * pair[1] * 9999 + pair[1])
    moves = sorted(legal_moves(fen))
    return ActionValues(
        fen=fen, moves=[(m, *pair) for m, pair in zip(moves, pairs[::-1], strict=True)]
    )


def mutate(text: str, other: str, rng: random.Random) -> str:
    """One to three small changes; `other` is an answer to another question."""
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        at, to = sorted(rng.randrange(len(text) + 1) for _ in range(2))
        words = text.split(" ")
        one, two = rng.randrange(len(words)), rng.randrange(len(words))
        kind = rng.randrange(11)
        if kind == 0:
            text = text[:at] + text[at + 1 :]
        elif kind == 1:
            text = text[:at] + rng.choice(ALPHABET) + text[at:]
        elif kind == 2:
            text = text[:at] + rng.choice(ALPHABET) + text[at + 1 :]
        elif kind == 3:
            words[one], words[two] = words[two], words[one]
            text = " ".join(words)
        elif kind == 4:
            words[one] = words[two]
            text = " ".join(words)
        elif kind == 5:
            text = text[:at] + text[to:]
        elif kind == 6:
            text = text[:to] + text[at:]
        elif kind == 7:
            text += rng.choice([" ", "\n", "<|endoftext|>", " B: e2e4", other, "\x00", "+0"])
        elif kind == 8:
            text = rng.choice([" ", "\n", "Sure: ", other]) + text
        elif kind == 9:
            text = text.swapcase() if rng.random() < 0.5 else text[:at].upper() + text[at:]
        else:
            theirs = other.split(" ")
            words[one] = theirs[rng.randrange(len(theirs))]
            text = " ".join(words)
    return text


@pytest.mark.parametrize("profile", ["canonical", "rookworld"])
def test_no_mutation_of_a_right_line_earns_more(profile: Profile) -> None:
    """10,000 mutated lines: no exception, none above 1.0; what still earns 1.0 is still right."""
    rng = random.Random(f"policy {profile}")
    tables = [scored(fen) for fen in positions(25)]
    lines = [policy_text_of(values, profile) for values in tables]
    read = rewarded = 0
    for _ in range(COUNT):
        at = rng.randrange(len(tables))
        values = tables[at]
        text = mutate(lines[at], rng.choice(lines), rng)
        answer = parse_policy(text, values.count, profile)
        if answer is None:
            continue
        read += 1
        reward = policy_reward(values, answer)
        assert 0.0 < reward.value <= 1.0, text
        if reward.value == 1.0:
            rewarded += 1
            assert values.regret(answer.best) <= 0.005
            assert len(set(answer.moves)) == 5
            assert set(answer.moves) <= set(values.table)
        else:
            assert text != lines[at]
    assert read > 500  # the mutations reach the second tier, too
    assert rewarded > 50


def test_no_mutation_of_a_right_state_earns_more() -> None:
    """10,000 mutated states: only the right text is right; anything else earns .50 at most."""
    rng = random.Random("environment")
    steps = []
    for fen in positions(25):
        legal = sorted(legal_moves(fen))
        steps += [(fen, uci) for uci in (*rng.sample(legal, 3), "a1a1")]
    truths = [transition(*step) for step in steps]
    texts = [environment_text(truth) for truth in truths]
    read = 0
    for _ in range(COUNT):
        at = rng.randrange(len(steps))
        text = mutate(texts[at], rng.choice(texts), rng)
        answer = parse_environment(text)
        if answer is None:
            continue
        read += 1
        reward = environment_reward(steps[at][0], truths[at], answer)
        if text == texts[at]:
            assert reward.value == 1.0
        else:
            assert 0.0 < reward.value <= 0.5 + 1e-9, text
            assert reward.score01 == 0.0
    assert read > 500


def test_no_mutation_of_a_wrong_line_earns_more_than_a_right_one() -> None:
    """Lines that were wrong to begin with stay within 0..1 whatever happens to them."""
    rng = random.Random("wrong")
    values = scored(positions(1)[0])
    text = policy_text_of(values, shuffle_seed=3)
    for _ in range(COUNT // 5):
        mutant = mutate(text, policy_text_of(values), rng)
        answer = parse_policy(mutant, values.count)
        if answer is None:
            continue
        assert policy_reward(values, answer).value <= 1.0
        text = mutant  # a walk: changes pile up while the line can be read
    assert text != policy_text_of(values)

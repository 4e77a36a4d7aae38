"""Sets of seqs against Python's own sets."""

import random

import pytest

from queen_sync.backends.sqlite_seqs import Seqs, united


def runs(numbers):
    return Seqs.of((number, number + 1) for number in sorted(numbers))


@pytest.mark.parametrize("seed", range(20))
def test_a_set_behaves_as_a_set(seed):
    chance = random.Random(seed)
    seqs, plain = Seqs(), set()
    for _ in range(400):
        number = chance.randrange(1, 40)
        if chance.random() < 0.5:
            seqs.add(number)
            plain.add(number)
        else:
            seqs.discard(number)
            plain.discard(number)
        assert list(seqs) == sorted(plain)
        assert len(seqs) == len(plain)
        assert [n in seqs for n in range(42)] == [n in plain for n in range(42)]
        assert Seqs.decode(seqs.encode()) == seqs == runs(plain)
        first, end, room = chance.randrange(45), chance.randrange(45), chance.randrange(50)
        gaps = [n for low, high in seqs.gaps(first, end, room) for n in range(low, high)]
        assert gaps == [n for n in range(first, end) if n not in plain][:room]
        copy = seqs.copy()
        copy.drop_until(first)
        assert list(copy) == sorted(n for n in plain if n >= first)
        copy = seqs.copy()
        head = copy.take_head(first)
        expected = first
        if plain and first == min(plain):
            while expected in plain:
                expected += 1
        assert head == expected
        assert set(copy) == plain - set(range(first, expected))


@pytest.mark.parametrize("seed", range(5))
def test_united_counts_what_ranges_hold_together(seed):
    chance = random.Random(seed)
    for _ in range(100):
        ranges = [(n, n + chance.randrange(9)) for n in chance.choices(range(1, 30), k=5)]
        assert united(ranges) == len({n for low, high in ranges for n in range(low, high)})


def test_a_whole_batch_is_two_numbers_however_it_is_settled():
    numbers = list(range(1, 10_001))
    random.Random(1).shuffle(numbers)
    settled = Seqs()
    for number in numbers:
        settled.add(number)
    assert settled.edges == [1, 10_001]
    assert len(settled.encode()) == 16
    for number in numbers:
        settled.discard(number)
    assert not settled
    assert settled.encode() is None

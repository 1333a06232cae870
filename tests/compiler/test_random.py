

def test_several_draws_of_one_step_are_those_of_eager() -> None:
    """The second draw reads both numbers of a state that the first left, whatever its length."""

    def draws() -> tuple[lucid.Tensor, ...]:
        return lucid.rand(8), lucid.rand(4), lucid.randn(3), lucid.rand(2), lucid.randn(2, 2)

    lucid.manual_seed(3)
    expected = draws()
    lucid.manual_seed(3)
    for drawn, wanted in zip(lucid.compile(draws)(), expected, strict=True):
        assert drawn.tolist() == wanted.tolist()

"""Faults planted into the library are found by the simulated worlds."""

import pytest

from fault_sizes import figure
from loopwright.testing import SimulationFailed, simulate
from planted_faults import PLANTED


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found_within_a_thousand_seeds(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    PLANTED[name](monkeypatch)

    with pytest.raises(SimulationFailed) as found:
        simulate(seeds=1000)

    figure(f"planted fault {name}", f"found by seed {found.value.seed}")


def test_twenty_faults_are_planted_in_six_places() -> None:
    places = {name.partition("_")[0] for name in PLANTED}

    assert len(PLANTED) >= 20
    assert places == {"fence", "barrier", "lease", "replay", "budget", "permit"}

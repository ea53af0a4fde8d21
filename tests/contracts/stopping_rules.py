"""The contract of every stopping rule."""

from dataclasses import FrozenInstanceError

import pytest

from app.engine.stopping import Situation, Stop, StoppingRule


class StoppingRuleContract:
    """Parametrise it by rules, each with a test that it ends and one that it continues."""

    def test_it_ends_a_finished_test_with_a_sentence_and_has_no_state(
        self, rule: StoppingRule, over: Situation, going_on: Situation
    ) -> None:
        stop = rule.check(over)
        assert isinstance(stop, Stop)
        assert stop.detail.endswith(".")
        assert any(character.isdigit() for character in stop.detail)
        assert rule.check(going_on) is None
        assert rule.check(over) == stop

    def test_it_is_immutable(
        self, rule: StoppingRule, over: Situation, going_on: Situation
    ) -> None:
        for name in getattr(type(rule), "__dataclass_fields__", ["anything"]):
            with pytest.raises(FrozenInstanceError):
                setattr(rule, name, None)

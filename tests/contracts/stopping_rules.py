"""What every stopping rule must do, whatever it looks at."""

from abc import ABC, abstractmethod
from dataclasses import FrozenInstanceError

import pytest

from app.engine.stopping import Situation, Stop, StoppingRule


class StoppingRuleContract(ABC):
    """Subclass it with a rule, a situation in which it must end the test, and one in which not."""

    @abstractmethod
    def rule(self) -> StoppingRule:
        """The rule under test."""

    @abstractmethod
    def over(self) -> Situation:
        """A test that the rule ends."""

    @abstractmethod
    def going_on(self) -> Situation:
        """A test that the rule lets go on."""

    def test_it_says_why_in_a_sentence(self) -> None:
        stop = self.rule().check(self.over())
        assert isinstance(stop, Stop)
        assert stop.detail.endswith(".")
        assert any(character.isdigit() for character in stop.detail)

    def test_it_lets_other_tests_go_on(self) -> None:
        assert self.rule().check(self.going_on()) is None

    def test_it_remembers_nothing(self) -> None:
        rule = self.rule()
        first = rule.check(self.over())
        assert rule.check(self.going_on()) is None
        assert rule.check(self.over()) == first

    def test_it_cannot_be_changed(self) -> None:
        rule = self.rule()
        for name in getattr(type(rule), "__dataclass_fields__", ["anything"]):
            with pytest.raises(FrozenInstanceError):
                setattr(rule, name, None)

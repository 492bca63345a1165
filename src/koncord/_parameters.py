"""Parameters of a constructor, stored as given, in the manner of scikit-learn's estimators, without importing it."""

from collections.abc import Mapping
from copy import deepcopy
from inspect import Parameter, signature
from typing import Any, Self

SHOWN_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


class Parameterized:
    """An object whose parameters are the arguments of its constructor, each kept in an attribute of the same name.

    scikit-learn's `clone`, and `set_params` of what holds such an object, work with it.
    """

    @classmethod
    def _parameters(cls) -> Mapping[str, Parameter]:
        if cls.__init__ is object.__init__:
            return {}
        own = list(signature(cls.__init__).parameters.values())[1:]  # without self
        return {each.name: each for each in own if each.kind in SHOWN_BY_NAME}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name; where `deep`, those of a parameter that has some as well, as ``name__own``."""
        found: dict[str, Any] = {}
        for name in sorted(self._parameters()):
            value = getattr(self, name)
            if deep and hasattr(value, "get_params") and not isinstance(value, type):
                found |= {f"{name}__{own}": each for own, each in value.get_params().items()}
            found[name] = value
        return found

    def set_params(self, **params: Any) -> Self:
        """Change some of the parameters; ``name__own`` is one of a parameter that has some.

        Parameters
        ----------
        **params
            By name.
        """
        known = self._parameters()
        for name, value in params.items():
            own, _, inner = name.partition("__")
            if own not in known:
                raise ValueError(
                    f"Invalid parameter {own!r} for {type(self).__name__}; it has {', '.join(sorted(known)) or 'none'}."
                )
            if inner:
                getattr(self, own).set_params(**{inner: value})
            else:
                setattr(self, name, value)
        return self

    def cloned(self) -> Self:
        """Another one with the same parameters."""
        given = self.get_params(deep=False).items()
        return type(self)(
            **{name: value.cloned() if hasattr(value, "cloned") else deepcopy(value) for name, value in given}
        )

    def __repr__(self) -> str:
        """The call that makes it, with the parameters that are not as they are without being asked for."""
        known = self._parameters()
        changed = [
            f"{name}={value!r}"
            for name, value in self.get_params(deep=False).items()
            if repr(value) != repr(known[name].default)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

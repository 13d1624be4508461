"""The promises of a plugin's light module, as tests to inherit."""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pluggy

import rlvr.hookspecs
from rlvr import API_VERSION
from rlvr.config.core import CORE_OPTIONS
from rlvr.config.fields import HELP
from rlvr.config.layers import Layer, resolve
from rlvr.config.schema import options_of
from rlvr.specs import AlgorithmSpec, Check, CommandSpec, PartSpec, TaskSpec
from rlvr.suggest import is_slip
from rlvr.testing.contract import Contract, same

HEAVY = (
    "chess",
    "cocotb",
    "docker",
    "jax",
    "matplotlib",
    "peft",
    "ray",
    "stockfish",
    "tinker",
    "torch",
    "transformers",
    "vllm",
)


_FORMS = {
    "target": "MODULE:NAME of a class or function",
    "config": "MODULE:NAME of an attrs class",
    "starter": "MODULE:NAME of a function that gives a model spec, such as gpt2:PATH",
}
"""What the texts of a record are that name an object."""


class PluginContract(Contract):
    """
    Tests of the module behind an `rlvr` entry point. Set `module`.

    Attributes:
        module: Dotted name of the light module, `rlvr_cvdp.plugin`.
        heavy: Packages that importing it must not import.
    """

    module: ClassVar[str] = ""
    heavy: ClassVar[tuple[str, ...]] = HEAVY

    # --- promises -------------------------------------------------------------------------------

    def test_states_the_api_it_was_built_for(self) -> None:
        """`RLVR_API` is the number of this rlvr's plugin API."""
        same("RLVR_API of the module", getattr(self._import(), "RLVR_API", None), API_VERSION)

    def test_importing_it_is_light(self) -> None:
        """Listing plugins never pays for torch and its like, and changes nothing in the process."""
        code = "\n".join(
            [
                "import json, os, sys, warnings",
                "from rlvr.testing.plugin import offers",
                "from rlvr.testing.process import KitWarning, nothing_changed",
                "warnings.simplefilter('error', KitWarning)",
                "code = 1",
                "try:",
                "    with nothing_changed():",
                f"        import {self.module} as plugin",
                "        list(offers(plugin))",
                f"    print(json.dumps([n for n in {list(self.heavy)!r} if n in sys.modules]))",
                "    code = 0",
                "except BaseException as error:",
                "    print(f'{type(error).__name__}: {error}', file=sys.stderr)",
                "print(flush=True), os._exit(code)",  # a thread that it left would hold up the end
            ]
        )
        words = [sys.executable, "-c", code]
        done = subprocess.run(words, capture_output=True, text=True)
        last = (done.stderr.splitlines() or ["no word"])[-1]
        assert done.returncode == 0, f"importing {self.module} in a new process ended with: {last}"
        found = json.loads(done.stdout.splitlines()[-2])  # it may print
        assert not found, f"importing {self.module} imports {', '.join(map(repr, found))}"

    def test_every_hook_is_known(self) -> None:
        """No `rlvr_...` function is misspelt, unmarked, or takes what its hook does not give."""
        module = self._import()
        for name in dir(module):
            if not name.startswith("rlvr_") or not callable(getattr(module, name)):
                continue
            if not hasattr(rlvr.hookspecs, name):
                public = (getattr(rlvr, known) for known in dir(rlvr))
                is_imported = any(getattr(module, name) is one for one in public)
                assert is_imported, f"no hook is called {name}"  # rlvr.rlvr_command is none
                continue
            assert hasattr(getattr(module, name), "rlvr_impl"), f"{name} lacks @hookimpl"
            for parameter in inspect.signature(getattr(module, name)).parameters.values():
                assert parameter.default is parameter.empty, f"{name}: pluggy ignores defaults"
        manager = pluggy.PluginManager("rlvr")
        manager.add_hookspecs(rlvr.hookspecs)
        if own := getattr(module, "RLVR_HOOKSPECS", ""):
            manager.add_hookspecs(importlib.import_module(own))
        manager.register(module)
        manager.check_pending()

    def test_offers_something(self) -> None:
        """At least one hook is implemented, and offers are frozen records of the right kind."""
        module = self._import()
        hooks = [name for name in dir(module) if hasattr(getattr(module, name), "rlvr_impl")]
        assert hooks, f"{self.module} has no function under @hookimpl"
        for spec in offers(module):
            assert attrs.has(type(spec)), f"an offer is {spec!r:.80}, no record"
            assert hasattr(spec, "kind"), f"an offer is {spec!r:.80}, which has no kind"
            assert spec.summary, f"{spec.kind} {spec.name!r} has no summary"

    def test_names_are_unique(self) -> None:
        """Within a kind no two offers share a name."""
        names = [(spec.kind, spec.name) for spec in offers(self._import())]
        twice = sorted({name for name in names if names.count(name) > 1})
        assert not twice, f"offered more than once: {twice}"

    def test_targets_resolve(self) -> None:
        """Every `target`, `config` and `starter` can be imported and called."""
        for spec in offers(self._import()):
            if not isinstance(spec, PartSpec | Check | CommandSpec):
                continue
            for name, form in _FORMS.items():
                if not (target := getattr(spec, name, None)):
                    continue
                says = f"{spec.kind} {spec.name!r} has {name}={target!r}, which is to be {form}"
                is_config = name == "config"
                try:
                    found = _resolve(target)
                    if not (attrs.has(found) if is_config else callable(found)):
                        wrong = "is no attrs class" if is_config else "cannot be called"
                        raise TypeError(f"{target} {wrong}")
                    if isinstance(spec, CommandSpec) and inspect.iscoroutinefunction(found):
                        raise TypeError(f"{target} is async, and nothing awaits it")
                except (ImportError, AttributeError, TypeError) as error:
                    raise AssertionError(f"{says}: {error}") from error

    def test_parts_take_config_and_context(self) -> None:
        """A part's target can be called with `(config, context)`."""
        for spec in offers(self._import()):
            if isinstance(spec, PartSpec):
                try:
                    inspect.signature(_resolve(spec.target)).bind(object(), object())
                except TypeError as error:
                    raise AssertionError(
                        f"{spec.kind} {spec.name!r}, {spec.target}: {error}"
                    ) from None

    def test_every_option_has_a_help_line_and_a_default(self) -> None:
        """Config fields were made with `rlvr.option`, the records are frozen and build bare."""
        for spec in offers(self._import()):
            if not isinstance(spec, PartSpec) or not spec.config:
                continue
            record = _resolve(spec.config)
            made = record()
            for field in attrs.fields(record):
                assert field.metadata.get(HELP), f"{spec.config}.{field.name} has no help line"
                with suppress(attrs.exceptions.FrozenError):
                    setattr(made, field.name, getattr(made, field.name))
                    raise AssertionError(
                        f"{spec.config} can be changed once it is made, and a run writes down what "
                        "it was at the start: write @frozen(kw_only=True) above the class"
                    )

    def test_starters_name_a_model(self) -> None:
        """A task's starter gives SCHEME:..., and a path in it is that of a file or full folder."""
        from rlvr.border.calls import told_by  # here: a PluginContract promises a light import

        for spec in offers(self._import()):
            if isinstance(spec, TaskSpec) and spec.starter:
                model = told_by(spec, spec.starter, str, "a model spec")
                says = f"{spec.kind} {spec.name!r}: {spec.starter} gives {model!r}"
                _, _, rest = model.partition(":")
                assert rest, f"{says}; a model spec is SCHEME:..., such as gpt2:PATH"
                place = Path(rest.partition("?")[0])
                is_full = next(place.rglob("*"), None) if place.is_dir() else place.exists()
                assert is_full or not place.is_absolute(), f"{says}, and no file is there"

    def test_vetted_values_name_real_options(self) -> None:
        """Values of algorithms and presets fit options that the core or this plugin has."""
        specs = list(offers(self._import()))
        beside = offers(importlib.import_module("rlvr.builtin.plugin"))
        records = [*CORE_OPTIONS.items()]
        for spec in (*beside, *specs):
            if isinstance(spec, PartSpec) and spec.config:
                records.append((spec.option_namespace, _resolve(spec.config)))
        known: dict[str, set[str]] = {}
        for namespace, record in records:
            known.setdefault(namespace, set()).update(attrs.fields_dict(record))
        for spec in specs:
            for key in _vetted(spec):
                namespace, _, name = key.partition(".")
                assert name, f"{spec.name}: {key!r} is no namespace.key"
                meant = next((k for k in known if k != namespace and is_slip(namespace, k)), "")
                assert namespace in known or not meant, (
                    f"{spec.kind} {spec.name!r} sets {key!r}: did you mean {meant}.{name}?"
                )
                assert namespace not in known or name in known[namespace], (
                    f"{spec.kind} {spec.name!r} sets {key!r}, which does not exist; "
                    f"{namespace} has {sorted(known[namespace])}"
                )
            for values, (namespace, record) in product(_values(spec), records):
                own = options_of({namespace: record})
                given = Layer(spec.name, {k: v for k, v in values.items() if k in own})
                resolve({namespace: record}, [given])

    # --- helpers --------------------------------------------------------------------------------

    def _import(self) -> Any:
        assert self.module, f"{type(self).__name__} must set `module`"
        return importlib.import_module(self.module)


def offers(module: Any) -> Iterable[Any]:
    """All records that the module's offer hooks yield."""
    for name in rlvr.hookspecs.__all__:
        hook = vars(rlvr.hookspecs)[name]
        implementation = getattr(module, name, None)
        if implementation is not None and not inspect.signature(hook).parameters:
            yield from implementation()


def _values(spec: Any) -> list[Mapping[str, Any]]:
    """The option values of a spec: its own, and those together with each preset's."""
    values = spec.values if isinstance(spec, AlgorithmSpec | TaskSpec) else {}
    presets = spec.presets.values() if isinstance(spec, TaskSpec) else ()
    return [values, *({**values, **preset} for preset in presets)]


def _vetted(spec: Any) -> list[str]:
    """The dotted keys that a spec names: of values and presets, and of other parts' options."""
    named = (*getattr(spec, "teachers", ()), *getattr(spec, "starts", ()))
    return [*(key for values in _values(spec) for key in values), *named]


def _resolve(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)

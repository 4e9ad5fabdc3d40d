"""Seeds and states of the random numbers of a GPU that is not there: they are those of the CPU, which draws instead.

A program that uses a GPU (``torch.cuda.set_device``, ``x.cuda()``, ``device="cuda"``) has its draws from then on seeded
by ``torch.cuda.manual_seed``, and saves and restores ``torch.cuda.get_rng_state()`` around them, as Megatron's tracker
of random states does; what it has seeded before acts when it first uses one. There is one generator for both, so
what such a program draws on the CPU follows the GPU's seed too. To all other programs a GPU's seed is nothing, as where
there is no GPU.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable

import torch


class AcceleratorSeeds:
    """The stand-ins for ``torch.cuda.random`` of one redirection. ``taken``: the program uses a GPU."""

    def __init__(self, local_size: int) -> None:
        self.local_size = local_size
        self.taken = False
        self._waiting: int | torch.Tensor | None = None
        """The seed or the state that is set when the program first uses a GPU."""

    def stand_ins(self) -> dict[str, object]:
        """What each name of ``torch.cuda`` is replaced with: a function of its own, as Dynamo wants them."""
        return {
            "_lazy_call": lambda call, **options: self._at_once(call),
            "get_rng_state": lambda device=None: self._state(),
            "get_rng_state_all": lambda: [self._state() for _ in range(self.local_size)],
            "initial_seed": torch.initial_seed,
            "manual_seed": lambda seed: self._seed(seed),
            "manual_seed_all": lambda seed: self._seed(seed),
            "seed": lambda: self._seed(None),
            "seed_all": lambda: self._seed(None),
            "set_device": lambda device: self.take(),
            "set_rng_state": lambda new_state, device=None: self._restore(new_state),
            "set_rng_state_all": lambda new_states: self._restore_all(new_states),
        }

    def take(self) -> None:
        """The program uses a GPU."""
        if self.taken:
            return
        waiting = self._state_waiting()
        self.taken, self._waiting = True, None
        if waiting is not None:
            torch.default_generator.set_state(waiting)

    def _seed(self, seed: int | None) -> None:
        """From ``seed`` on; None: from one that nobody knows."""
        if not self.taken:
            self._waiting = None if seed is None else int(seed)
        elif seed is None:
            torch.default_generator.seed()
        else:
            torch.default_generator.manual_seed(int(seed))

    def _state(self) -> torch.Tensor:
        waiting = self._state_waiting()
        return torch.get_rng_state() if waiting is None else waiting

    def _restore(self, state: torch.Tensor) -> None:
        if self.taken:
            torch.default_generator.set_state(state)
        else:
            self._waiting = state

    def _restore_all(self, states: Iterable[torch.Tensor]) -> None:
        """``states`` of all GPUs; none were saved where there was none."""
        for state in itertools.islice(states, 1):
            self._restore(state)

    def _state_waiting(self) -> torch.Tensor | None:
        """The state that waits; None where it is that of the CPU, which ``torch.manual_seed`` seeds alike."""
        if isinstance(self._waiting, int):
            if self._waiting == torch.initial_seed():
                return None
            return torch.Generator().manual_seed(self._waiting).get_state()
        return self._waiting

    def _at_once(self, call: Callable[[], object]) -> None:
        """What waits for a GPU to be used happens now, as far as it can without one."""
        with contextlib.suppress(RuntimeError, AssertionError, AttributeError):
            if self.taken:
                call()

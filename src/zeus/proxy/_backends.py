"""Back ends, and which of them a request goes to."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Sequence

from zeus.errors import BackendError
from zeus.monitor._request_counts import MAX_MODELS
from zeus.monitor._requests import RequestMonitor
from zeus.proxy._client import OpenAIClient
from zeus.proxy._pool import Origin, Pool, Timeouts

logger = logging.getLogger(__name__)

_LIST_SECONDS = 5.0  # to list models
_LIST_AGAIN = 30.0  # seconds after which an unknown model is looked for again


class Backend:
    """A server of language models.

    Args:
        url: Its URL.
        model: Name of its model, if it is the only one that it is to be asked for.
        requests: Divides the energy of its GPUs.
        timeouts: How long it may take.

    Raises:
        ValueError: If the URL is invalid.
    """

    def __init__(
        self,
        url: str,
        requests: RequestMonitor,
        *,
        model: str | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self.pool = Pool(Origin(url), timeouts)
        self.url = self.pool.origin.url
        self.model = model
        self.requests = requests
        self.in_flight = 0
        #: Names of its models; `None` until it has listed them.
        self.models: frozenset[str] | None = None if model is None else frozenset((model,))
        self._answered: set[str] = set()

    def counted_as(self, asked: str | None) -> str:
        """Return the model that a request counts as: names that any client makes up do not.

        Args:
            asked: The name in the request; `None` if there is none.

        Returns:
            Empty for a name that it neither lists nor has answered to.
        """
        listed = self.models or frozenset()
        if asked is None:
            return next(iter(listed)) if len(listed) == 1 else ""
        return asked if asked in listed or asked in self._answered else ""

    def has_answered(self, asked: str | None) -> None:
        """Note that it has answered to a name."""
        if asked is not None and len(self._answered) < MAX_MODELS:
            self._answered.add(asked)

    async def list_models(self) -> None:
        """Ask it for its models; it keeps the known ones if it does not answer."""
        if self.model is not None:
            return
        limits = Timeouts(connect=_LIST_SECONDS, silence=_LIST_SECONDS)
        async with OpenAIClient(self.url, timeouts=limits) as client:
            try:
                self.models = frozenset(await client.models())
            except BackendError as error:
                logger.debug("models of %s: %s", self.url, error)


class Backends:
    """Chooses a back end for each request.

    Args:
        all_of_them: Back ends; several may have the same model.
    """

    def __init__(self, all_of_them: Sequence[Backend]) -> None:
        self.all = all_of_them
        self._turn = itertools.count()
        self._listed = 0.0

    async def list_models(self) -> None:
        """Ask all back ends for their models."""
        self._listed = asyncio.get_running_loop().time()
        await asyncio.gather(*(backend.list_models() for backend in self.all))

    def due(self) -> bool:
        """Return whether it is time to look for an unknown model again."""
        return asyncio.get_running_loop().time() - self._listed > _LIST_AGAIN

    def known(self, model: str | None) -> bool:
        """Return whether a back end has listed a model, or it does not matter."""
        if model is None or len(self.all) == 1:
            return True
        return any(model in (backend.models or ()) for backend in self.all)

    def choose(self, model: str | None) -> Backend | None:
        """Return the back end with the fewest requests in flight that has a model.

        Args:
            model: Its name; `None` if the request does not say.

        Returns:
            `None` if no back end has it.
        """
        candidates = self.all
        if model is not None:
            candidates = [each for each in self.all if model in (each.models or ())]
            if not candidates:  # one that has not listed its models may have it
                candidates = [each for each in self.all if each.model is None]
                if any(each.models is not None for each in candidates) and len(self.all) > 1:
                    candidates = [each for each in candidates if each.models is None]
        if not candidates:
            return None
        turn = next(self._turn)
        order = range(len(candidates))
        best = min(
            order,
            key=lambda at: (candidates[at].in_flight, (at - turn) % len(candidates)),
        )
        return candidates[best]

"""Async functions are refused where their result is not awaited: they would never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest

from kafkalog import aio, errors
from kafkalog.arguments import called
from kafkalog.client.consumer.assignors import Assignor
from kafkalog.client.consumer.consumer import Consumer
from kafkalog.client.producer.producer import Producer
from kafkalog.mirror.mirror import Mirror
from tests.support.scripted import Peer
from tests.support.waiting import LIMIT_S
from tests.unit.client.producer.producing import make

NOWHERE = "127.0.0.1:1"


async def awaited(*_: Any) -> Any:
    """Nobody awaits it."""


async def generator(*_: Any) -> AsyncIterator[None]:
    yield


class Awaited:
    async def __call__(self, *_: Any) -> None:
        """Nobody awaits it."""


class Seeing:
    """An interceptor with one async method."""

    def __init__(self, method: str) -> None:
        setattr(self, method, awaited)


def assigning(word: str) -> Assignor:
    return Assignor("mine", lambda *_: {})._replace(**{word: awaited})


REFUSED: dict[str, Callable[[], Any]] = {
    "on_delivery": lambda: Producer(NOWHERE, on_delivery=awaited),
    "partitioner": lambda: Producer(NOWHERE, partitioner=awaited),  # type: ignore[arg-type]
    "interceptors: Seeing.on_send": lambda: Producer(NOWHERE, interceptors=[Seeing("on_send")]),
    "interceptors: Seeing.on_ack": lambda: Producer(NOWHERE, interceptors=[Seeing("on_ack")]),
    "interceptors: Seeing.on_consume": lambda: Consumer(
        NOWHERE, interceptors=[Seeing("on_consume")]
    ),
    "interceptors: Seeing.on_commit": lambda: Consumer(NOWHERE, interceptors=[Seeing("on_commit")]),
    "assignor: Assignor.assign": lambda: Consumer(NOWHERE, group="g", assignor=assigning("assign")),
    "assignor: Assignor.user_data": lambda: Consumer(
        NOWHERE, group="g", assignor=assigning("user_data")
    ),
    "value_serializer": lambda: Producer(NOWHERE, value_serializer=awaited),
    "key_deserializer": lambda: Consumer(NOWHERE, key_deserializer=awaited),
    "on_warning": lambda: Mirror(NOWHERE, NOWHERE, "t", on_warning=awaited),
    "on_progress": lambda: Mirror(NOWHERE, NOWHERE, "t", on_progress=awaited),
}
OF_ASYNCIO: dict[str, Callable[[], Any]] = {
    "on_delivery": lambda: aio.Producer(NOWHERE, on_delivery=awaited),
    "interceptors: Seeing.on_consume": lambda: aio.Consumer(
        NOWHERE, interceptors=[Seeing("on_consume")]
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unawaited_async_functions_are_refused(name: str) -> None:
    with pytest.raises(errors.ArgumentError, match=f"^{name}: found an async function"):
        REFUSED[name]()


@pytest.mark.parametrize("name", OF_ASYNCIO)
def test_asyncio_awaits_listeners_and_callbacks_alone(name: str) -> None:
    with pytest.raises(errors.ArgumentError, match=f"^{name}: found an async function"):
        OF_ASYNCIO[name]()


def test_callbacks_of_deliveries(broker: Peer) -> None:
    with make(broker) as producer:
        for sent in (producer.send("t", b"x"), producer.send_many("t", [b"y"])):
            with pytest.raises(errors.ArgumentError, match=r"^callback: found an async function"):
                sent.add_done_callback(awaited)
            sent.result(LIMIT_S)


@pytest.mark.parametrize("function", [awaited, generator, Awaited(), partial(awaited, 1)])
def test_every_kind_of_async_function_is_known(function: Any) -> None:
    with pytest.raises(errors.ArgumentError, match="f: found an async function"):
        called("f", function)


def test_others_are_taken() -> None:
    for function in (None, print, str, partial(print, 1), Seeing("x").__init__):
        called("f", function)
    with pytest.raises(errors.ArgumentError, match="f: found 5 of type int, wanted a function"):
        called("f", 5)

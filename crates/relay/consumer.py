"""Prints each event once, one JSON object a line: a sample of what a consumer has to do.

    python3 consumer.py nats://127.0.0.1:4222 STREAM NAME [--once]

NAME is the durable consumer, whose place the stream keeps. With --once it ends at the end of the stream. A real
consumer writes what it does with an event, the event's id and the order's `move` in one transaction of its database,
and acknowledges the message after that.
"""

import asyncio
import json
import sys

import nats
from nats.errors import TimeoutError

seen = set()  # ids of events; a repeat comes soon, so a day of them is enough
moves = {}  # order id -> its last move


def is_news(event):
    if event["id"] in seen:
        return False
    seen.add(event["id"])
    order, move = event["data"].get("order_id"), event["data"].get("move")
    if move is None:
        return True
    if move <= moves.get(order, 0):
        return False
    moves[order] = move
    return True


async def main(url, stream, name, once=False):
    connection = await nats.connect(url)
    jetstream = connection.jetstream()
    subscription = await jetstream.pull_subscribe("flash-sale.>", name, stream=stream)
    waiting = 1
    while waiting or not once:
        try:
            messages = await subscription.fetch(100)
        except TimeoutError:
            continue
        for message in messages:
            event = json.loads(message.data)
            if is_news(event):
                print(json.dumps(event), flush=True)
            await message.ack()
            waiting = message.metadata.num_pending
    await connection.close()


asyncio.run(main(*sys.argv[1:4], once="--once" in sys.argv))

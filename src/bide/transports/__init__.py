"""Transports: how an interaction reaches the outside and comes back. `bide.engine.transport` says what one is."""

from bide.engine.transport import (
    Admission,
    Answer,
    Answered,
    ListeningTransport,
    Poison,
    Request,
    Sent,
    Transport,
    Undelivered,
)
from bide.transports.kafka import Kafka
from bide.transports.signing import WebhookSignature
from bide.transports.webhook import Webhook

__all__ = [
    "Admission",
    "Answer",
    "Answered",
    "Kafka",
    "ListeningTransport",
    "Poison",
    "Request",
    "Sent",
    "Transport",
    "Undelivered",
    "Webhook",
    "WebhookSignature",
]

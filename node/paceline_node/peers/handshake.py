"""Carries the handshake of ``auth.py`` over a frame stream."""

from __future__ import annotations

from paceline.errors import ConnectionLost, PacelineError, RemoteProtocolError
from paceline.wire.frame import Frame, Kind
from paceline.wire.message import Message
from paceline.wire.peer.api import PeerApi
from paceline_node.net.framestream import FrameStream
from paceline_node.peers.auth import Acceptor, Initiator, Peer


async def initiate(frames: FrameStream, initiator: Initiator) -> Peer:
    """Authenticate towards the acceptor; returns who it is.

    Raises the typed errors of Initiator and those the acceptor answers, ConnectionLost,
    RemoteProtocolError. Set a deadline around it. Cancelled, the stream is of no further use.
    """
    body = await _ask(frames, PeerApi.HELLO, 1, initiator.hello())
    body = await _ask(frames, PeerApi.PROVE, 2, initiator.prove(body))
    return initiator.finish(body)


async def accept(frames: FrameStream, acceptor: Acceptor) -> Peer:
    """Authenticate an initiator; returns who it is.

    A refusal is sent to the other side as an ERROR frame, the stream is finished, and the error
    raised. Otherwise as :func:`initiate`.
    """
    hello = await _expect(frames, PeerApi.HELLO)
    try:
        reply = acceptor.reply(hello.body)
        frames.send_frame(Kind.RESPONSE, hello.api, hello.correlation, reply)
        proof = await _expect(frames, PeerApi.PROVE)
    except PacelineError as error:
        _refuse(frames, hello, error)
        raise
    try:
        prove, peer = acceptor.finish(proof.body)
    except PacelineError as error:
        _refuse(frames, proof, error)
        raise
    frames.send_frame(Kind.RESPONSE, proof.api, proof.correlation, prove)
    return peer


async def _ask(frames: FrameStream, api: PeerApi, correlation: int, body: Message) -> list[object]:
    frames.send_frame(Kind.REQUEST, api, correlation, body)
    frame = await frames.receive()
    if frame is None:
        raise ConnectionLost(f"{frames.name}: closed during the handshake", was_sent=False)
    frame.raise_for_error()
    if (frame.kind, frame.api, frame.correlation) != (Kind.RESPONSE, api, correlation):
        raise RemoteProtocolError(f"{frames.name}: unexpected frame during the handshake")
    return frame.body


async def _expect(frames: FrameStream, api: PeerApi) -> Frame:
    frame = await frames.receive()
    if frame is None:
        raise ConnectionLost(f"{frames.name}: closed during the handshake", was_sent=False)
    if frame.kind != Kind.REQUEST or frame.api != api:
        raise RemoteProtocolError(
            f"{frames.name}: expected {api.name} first, got kind {frame.kind} api {frame.api}"
        )
    return frame


def _refuse(frames: FrameStream, request: Frame, error: PacelineError) -> None:
    if frames.is_open:
        frames.send_error(request, error)
        frames.finish()

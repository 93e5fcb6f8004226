"""One request to an address whose node may be unknown: how a node joins
(paceline_node/DESIGN 2.3)."""

from __future__ import annotations

import trio

from paceline.errors import ConnectionLost, PacelineError, RemoteProtocolError, RequestTimedOut
from paceline.types import NO_NODE
from paceline.wire.frame import Frame, Kind
from paceline.wire.message import Message
from paceline_node.bare_errors import bare
from paceline_node.env import Env
from paceline_node.net.framestream import FrameStream
from paceline_node.net.tls_handshake import HandshakeFailed
from paceline_node.peers.auth import Identity, Initiator, Lane, Peer, Secret
from paceline_node.peers.channel import Channel, PeerTls
from paceline_node.peers.handshake import initiate


async def ask(
    env: Env,
    address: tuple[str, int],
    identity: Identity,
    secret: Secret,
    *,
    api: int,
    body: Message,
    timeout_s: float,
    lane: Lane = Lane.JOIN,
    tls: PeerTls | None = None,
) -> tuple[Peer, Frame]:
    """Connect, authenticate, ask once, close; returns who answered and its RESPONSE frame.

    Raises the typed error answered, those of the handshake, ConnectionLost (``was_sent`` False
    when the request itself was not sent) or RequestTimedOut. Cancel-safe as any request: it may be
    carried out.
    """
    host, port = address
    try:
        with trio.fail_after(timeout_s):
            try:
                stream = await env.net.connect(host, port)
            except OSError as error:
                raise ConnectionLost(str(error), was_sent=False) from error
            stream, channel = await _encrypted(stream, tls, f"{host}:{port}")
            frames = FrameStream(stream, name=f"{host}:{port}")
            initiator = Initiator(
                identity,
                secret,
                target=NO_NODE,
                lane=lane,
                nonces=env.rng.randbytes,
                channel=channel,
            )
            return await _exchange(frames, initiator, api, body)
    except trio.TooSlowError:
        raise RequestTimedOut(f"{host}:{port}: no answer within {timeout_s:g} s") from None


async def _encrypted(
    stream: trio.abc.Stream, tls: PeerTls | None, name: str
) -> tuple[trio.abc.Stream, Channel | None]:
    if tls is None:
        return stream, None
    try:
        return await tls.dial(stream)
    except HandshakeFailed as error:
        raise ConnectionLost(f"{name}: {error}", was_sent=False) from error


async def _exchange(
    frames: FrameStream, initiator: Initiator, api: int, body: Message
) -> tuple[Peer, Frame]:
    outcome: tuple[Peer, Frame] | PacelineError
    async with trio.open_nursery() as nursery:
        nursery.start_soon(frames.run_writer)
        try:
            peer = await initiate(frames, initiator)
            frames.send_frame(Kind.REQUEST, api, 3, body)
            frame = await frames.receive()
            if frame is None or frame.correlation != 3:
                raise RemoteProtocolError(f"{frames.name}: closed without an answer")
            frame.raise_for_error()
            outcome = (peer, frame)
        except PacelineError as error:
            outcome = bare(error)
        nursery.cancel_scope.cancel()
    if isinstance(outcome, PacelineError):
        try:
            raise outcome
        finally:
            del outcome
    return outcome

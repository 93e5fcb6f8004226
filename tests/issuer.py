"""Who issues tokens in tests: keys, a JWKS of their public halves, and JWTs."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from tests.authority import KeyPair

NAME = "https://issuer.test"
AUDIENCE = "paceline"


class Issuer:
    """Has keys by their ids, the first of which signs if none is named."""

    def __init__(self, *kinds: str) -> None:
        self._keys: dict[str, tuple[str, Any]] = {}
        self.published: list[dict[str, Any]] = []
        for kind in kinds or ("ES256",):
            self.add(kind)

    def add(self, algorithm: str, **said: str | None) -> str:
        """Make a key and publish it; its id. ``said`` is what the JWKS says beside it."""
        number = f"key-{len(self._keys)}"
        key, published = _made(algorithm)
        self._keys[number] = algorithm, key
        entry = {**published, "kid": number, "use": "sig", "alg": algorithm, **said}
        self.published.append({name: value for name, value in entry.items() if value is not None})
        return number

    def token(self, name: str | None = "alice", *, kid: str = "", **claims: object) -> str:
        """Of ``name``, good for an hour. A claim of None is left out."""
        number = kid or next(iter(self._keys))
        algorithm, key = self._keys[number]
        now = int(time.time())
        said = {"iss": NAME, "aud": AUDIENCE, "sub": name, "iat": now, "exp": now + 3600, **claims}
        payload = {name: value for name, value in said.items() if value is not None}
        return jwt.encode(payload, key, algorithm, headers={"kid": number})

    @property
    def jwks(self) -> bytes:
        return json.dumps({"keys": self.published}).encode()

    def file(self, directory: Path) -> str:
        path = directory / "jwks.json"
        path.write_bytes(self.jwks)
        return str(path)

    def settings(self, jwks: str) -> dict[str, str]:
        """A node's, so that it takes these tokens."""
        return {"oauth.jwks": jwks, "oauth.issuer": NAME, "oauth.audience": AUDIENCE}

    @contextmanager
    def serving(self, pair: KeyPair | None = None) -> Iterator[tuple[str, list[str]]]:
        """At a URL of this machine, inside TLS with a certificate; that, and the paths that were
        asked for."""
        asked: list[str] = []
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                if self.path == "/elsewhere":
                    self.send_response(302)
                    self.send_header("location", "/jwks")
                    self.end_headers()
                    return
                self.send_response(200)
                self.end_headers()
                with suppress(OSError):  # of who has heard enough
                    self.wfile.write(issuer.jwks if self.path == "/jwks" else bytes(2 << 20))

            def log_message(self, *_: object) -> None:
                """Not on the test's output."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if pair is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(pair.certificate, pair.key)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http{'' if pair is None else 's'}://127.0.0.1:{server.server_port}/jwks", asked
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def _made(algorithm: str) -> tuple[Any, dict[str, Any]]:
    if algorithm.startswith("ES"):
        curve = {"ES256": ec.SECP256R1, "ES384": ec.SECP384R1, "ES512": ec.SECP521R1}[algorithm]
        key = ec.generate_private_key(curve())
        return key, ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    if algorithm == "EdDSA":
        signing = ed25519.Ed25519PrivateKey.generate()
        return signing, OKPAlgorithm.to_jwk(signing.public_key(), as_dict=True)
    private = rsa.generate_private_key(65537, 2048)
    return private, RSAAlgorithm.to_jwk(private.public_key(), as_dict=True)

"""Attacks on the V1 listener: what is sent on one connection, from its first byte on."""

from __future__ import annotations


def posted_by_a_page(*lines: str, port: int) -> bytes:
    """What a browser sends for ``fetch(url, {method: "POST", mode: "no-cors", body: lines})`` on
    any page: simple requests need nobody's leave (headers such as browsers send)."""
    body = "".join(f"{line}\n" for line in lines).encode()
    head = (
        f"POST / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: keep-alive\r\n"
        f"Content-Length: {len(body)}\r\n"
        'sec-ch-ua: "Chromium";v="156", "Not)A;Brand";v="8"\r\n'
        "Content-Type: text/plain;charset=UTF-8\r\nsec-ch-ua-mobile: ?0\r\n"
        "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36\r\n"
        "Accept: */*\r\nOrigin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\n"
        "Sec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: empty\r\n"
        "Referer: https://evil.example/\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n\r\n"
    )
    return head.encode() + body

"""Asks a running operator whether it lives; what the image's health check calls.

Owns the one question. It must not know the operator, and imports nothing but the standard library. Why a program and
not curl: the image holds no other.

``HEALTHCHECK_URL`` names another port; unless it is set, HTTP and HTTPS are tried on the usual one. A certificate is
not verified, since the caller is in the same container.
"""

import http.client
import os
import ssl
import sys
import urllib.request

_URLS = ("http://127.0.0.1:10259/livez", "https://127.0.0.1:10259/livez")
_SECONDS = 2.0


def main() -> int:
    """Ask, and return 0 when an answer is 200, else 1."""
    given = os.environ.get("HEALTHCHECK_URL")
    if given and not given.startswith(("http://", "https://")):
        sys.stderr.write(f"HEALTHCHECK_URL is {given!r}: it must begin with http:// or https://\n")
        return 1
    problems = [_ask(url) for url in ((given,) if given else _URLS)]
    if None in problems:
        return 0
    sys.stderr.write("".join(f"{problem}\n" for problem in problems))
    return 1


def _ask(url: str) -> str | None:
    """Ask one address; what is wrong with its answer, or None."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    # Proxies of the environment are not asked: the operator is here.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        with opener.open(url, timeout=_SECONDS) as answer:
            return None if answer.status == 200 else f"{url}: HTTP {answer.status}"
    except (OSError, http.client.HTTPException) as problem:
        return f"{url}: {problem}"


if __name__ == "__main__":
    sys.exit(main())

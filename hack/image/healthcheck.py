"""Health check of the image: queries a running operator and imports only the standard library.

It is a program because the image contains no curl. ``HEALTHCHECK_URL`` selects another address; otherwise HTTP and
HTTPS are tried on the default port. The certificate is not verified, because the caller is in the same container.
"""

import http.client
import os
import ssl
import sys
import urllib.request

_URLS = ("http://127.0.0.1:10259/livez", "https://127.0.0.1:10259/livez")
_SECONDS = 2.0


def main() -> int:
    """Query the operator; return 0 if an answer is 200, else 1."""
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
    """Query one address; return the problem, or None."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    # No proxy of the environment is used: the operator is on this host.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        with opener.open(url, timeout=_SECONDS) as answer:
            return None if answer.status == 200 else f"{url}: HTTP {answer.status}"
    except (OSError, http.client.HTTPException) as problem:
        return f"{url}: {problem}"


if __name__ == "__main__":
    sys.exit(main())

"""Generates `llms.txt` (https://llmstxt.org): the list of pages of docs/README.md, for language models.

Links are relative to the root of the repository, where the file is.
"""

import posixpath
import re
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_LINK = re.compile(r"\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
_HEADER = """# Bayplan

> A Kubernetes scheduler that is managed as an operator, written in Python. Scheduler profiles, plugin configurations
> and gangs are custom resources. Decisions equal those of kube-scheduler v1.37.1.

A pod selects a profile by `spec.schedulerName`. `kubectl get sp,plc,bpg,bnr,brp` lists the custom resources (`podgroup`
alone may be Kubernetes' own). `bayplan explain NAMESPACE/POD` explains why a pod is pending. [README](README.md) ·
[changes](CHANGELOG.md) · [contribute](CONTRIBUTING.md).

"""


def llms_index() -> str:
    text = (_ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    sections = text[text.index("\n## ") + 1 :]
    return _HEADER + _LINK.sub(_from_root, sections)


def _from_root(link: re.Match[str]) -> str:
    target = link["target"]
    if "://" not in target:
        target = posixpath.normpath(posixpath.join("docs", target))
    return f"]({target}{link['anchor'] or ''})"

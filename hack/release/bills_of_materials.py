"""The bill of materials of a release in two formats: CycloneDX 1.5 and SPDX 2.3.

Equal inputs give equal bytes: serial number and namespace are computed from the content, and the time is the commit's.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterable

from hack.image.image_build import Provenance
from hack.release.locked_dependencies import Dependency, Document

LICENSE = "Apache-2.0"
_NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")
"""UUID namespace for URLs, of RFC 9562."""
_URL = "https://bayplan.dev/sbom"


def cyclonedx(bill: Document, packages: Iterable[Dependency], origin: Provenance) -> Document:
    """Complete uv's document by licences, and replace what differs from run to run."""
    licenses = {each.reference: each.license for each in packages}
    root = bill["metadata"]["component"]
    components = [{**each, "licenses": [{"expression": licenses[each["bom-ref"]]}]} for each in bill["components"]]
    application = {
        "type": "application",
        "bom-ref": root["bom-ref"],
        "name": "bayplan",
        "version": origin.version,
        "licenses": [{"expression": LICENSE}],
        "purl": f"pkg:pypi/bayplan@{origin.version}",
    }
    document = {
        **bill,
        "metadata": {**bill["metadata"], "timestamp": origin.created, "component": application},
        "components": components,
    }
    document.pop("serialNumber")
    return {**document, "serialNumber": f"urn:uuid:{_identity(document)}"}


def spdx(packages: Iterable[Dependency], origin: Provenance, root_needs: Iterable[str]) -> Document:
    """Return the SPDX document of the package and its dependencies.

    Args:
        root_needs: References of the packages on which Bayplan itself depends.
    """
    known = {each.reference: _identifier(each) for each in packages}
    own = "SPDXRef-Package-bayplan"
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", own)]
    relations += [(own, "DEPENDS_ON", known[each]) for each in root_needs]
    relations += [(known[each.reference], "DEPENDS_ON", known[other]) for each in packages for other in each.needs]
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"bayplan-{origin.version}",
        "creationInfo": {"created": origin.created, "creators": ["Tool: hack.release"]},
        "packages": [
            _package(own, "bayplan", origin.version, LICENSE, "NOASSERTION"),
            *(
                {
                    **_package(known[each.reference], each.name, each.version, each.license, _sdist(each)[0]),
                    "checksums": [{"algorithm": "SHA256", "checksumValue": _sdist(each)[1]}],
                }
                for each in packages
            ),
        ],
        "relationships": [
            {"spdxElementId": source, "relationshipType": kind, "relatedSpdxElement": target}
            for source, kind, target in relations
        ],
    }
    return {**document, "documentNamespace": f"{_URL}/{origin.version}/{_identity(document)}"}


def as_text(document: Document) -> str:
    """Return a document as JSON, in which keys have a fixed order."""
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _package(identifier: str, name: str, version: str, license_: str, location: str) -> Document:
    reference = {
        "referenceCategory": "PACKAGE-MANAGER",
        "referenceType": "purl",
        "referenceLocator": f"pkg:pypi/{name}@{version}",
    }
    return {
        "SPDXID": identifier,
        "name": name,
        "versionInfo": version,
        "downloadLocation": location,
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": license_,
        "copyrightText": "NOASSERTION",
        "externalRefs": [reference],
    }


def _sdist(package: Dependency) -> tuple[str, str]:
    """Return URL and SHA-256 of the source distribution, or of the first file of a package without one."""
    return next((each for each in package.files if each[0].endswith(".tar.gz")), package.files[0])


def _identifier(package: Dependency) -> str:
    return f"SPDXRef-Package-{re.sub(r'[^A-Za-z0-9.-]', '-', f'{package.name}-{package.version}')}"


def _identity(document: Document) -> uuid.UUID:
    return uuid.uuid5(_NAMESPACE, f"{_URL}#{hashlib.sha256(as_text(document).encode()).hexdigest()}")

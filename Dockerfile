# The image of Bayplan: an interpreter, the locked dependencies and the package; no shell, no package manager, no pip.
#   make image                       builds it with docker, podman or buildah, with or without a registry
#   docker build --tag bayplan .     works too, if the base image can be pulled
# BASE_IMAGE is a Debian with Python 3.11 or newer, venv and ca-certificates; the digest pins it for all architectures. To
# move it, take the digest that `docker buildx imagetools inspect python:3.13-slim-trixie` prints. Only what hack/image/runtime_root.py selects from it
# reaches the image; the build's tools do not.
ARG BASE_IMAGE=docker.io/library/python:3.13.15-slim-trixie@sha256:9d2e5553305c7c7b0097999bb17187c69b921ccd6bc9d40e4bb5ebe652c00285

FROM ${BASE_IMAGE} AS build
# Extras of the package, such as --build-arg EXTRAS=otel for tracing.
ARG EXTRAS=""
ENV PYTHONHASHSEED=0 \
    PYTHONDONTWRITEBYTECODE=1 \
    UV_NO_CACHE=1 \
    UV_PYTHON_DOWNLOADS=never
WORKDIR /src
# The index and its certificates, if they are not PyPI's, are passed as secrets: only one command reads them and they are in
# no layer.
COPY hack/image/build-tools.txt ./
RUN --mount=type=secret,id=index --mount=type=secret,id=ca \
    if [ -f /run/secrets/index ]; then . /run/secrets/index; fi; \
    python3 -m venv /opt/build \
    && /opt/build/bin/pip install --no-cache-dir --only-binary :all: --require-hashes --requirement build-tools.txt
# Dependencies before sources: their layers are reused until the lock changes. The lock is exported because it names the
# index where it was created, and this build may use a mirror.
COPY pyproject.toml uv.lock ./
COPY hack/image/runtime_root.py hack/image/
RUN --mount=type=secret,id=index --mount=type=secret,id=ca \
    if [ -f /run/secrets/index ]; then . /run/secrets/index; fi; \
    /opt/build/bin/uv export --frozen --no-default-groups --no-emit-project ${EXTRAS:+--extra "${EXTRAS}"} \
        --quiet --output-file requirements.txt \
    && /opt/build/bin/uv venv --quiet --python "$(command -v python3)" /opt/bayplan \
    && /opt/build/bin/uv pip sync --python /opt/bayplan/bin/python --no-build --require-hashes requirements.txt \
    && python3 hack/image/runtime_root.py runtime --environment /opt/bayplan --output /layers
COPY README.md LICENSE CHANGELOG.md ./
COPY crds crds
COPY scheduler_core scheduler_core
COPY operator operator
ARG VERSION=0.0.0.dev0
RUN SETUPTOOLS_SCM_PRETEND_VERSION="${VERSION}" /opt/build/bin/hatchling build --target wheel --directory /wheels \
    && /opt/build/bin/uv pip install --python /opt/bayplan/bin/python --no-index --no-deps /wheels/*.whl \
    && python3 hack/image/runtime_root.py package --environment /opt/bayplan --output /layers
COPY hack/image/healthcheck.py /layers/bayplan/opt/bayplan/healthcheck.py

FROM scratch
COPY --from=build /layers/runtime/ /
COPY --from=build /layers/dependencies/ /
COPY --from=build /layers/bayplan/ /
ENV PATH=/opt/bayplan/bin \
    LANG=C.UTF-8 \
    SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# A number, so that the kubelet can check that it is not root without the image's user table.
USER 65532:65532
EXPOSE 10259
# For engines without probes; Kubernetes uses the chart's probes.
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=6 \
    CMD ["python3", "/opt/bayplan/healthcheck.py"]
ENTRYPOINT ["bayplan"]
CMD ["run"]
# Last, because they change with every commit.
ARG BASE_IMAGE
ARG VERSION=0.0.0.dev0
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
ARG SOURCE=""
LABEL org.opencontainers.image.title="bayplan" \
      org.opencontainers.image.description="A Kubernetes scheduler that is managed as an operator" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.base.name="${BASE_IMAGE}"

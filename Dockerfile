# The image of Bayplan: an interpreter, the locked dependencies and the package, nothing that builds.
#   docker build --tag bayplan:0.1.0 --build-arg VERSION=0.1.0 --build-arg REVISION="$(git rev-parse HEAD)" .
# BASE_IMAGE needs Python 3.11 or newer with pip and venv; both stages use the same one, since the virtual environment
# points at its interpreter.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS build
ARG UV_VERSION=0.13.8
ENV UV_LINK_MODE=copy \
    UV_PYTHON_DOWNLOADS=never \
    UV_COMPILE_BYTECODE=1 \
    UV_PROJECT_ENVIRONMENT=/opt/bayplan
RUN python3 -m venv /opt/uv && /opt/uv/bin/pip install --no-cache-dir "uv==${UV_VERSION}"
WORKDIR /src
# Dependencies before sources: their layer lasts until the lock changes.
COPY pyproject.toml uv.lock ./
RUN /opt/uv/bin/uv sync --no-cache --frozen --no-dev --no-install-project
COPY README.md LICENSE ./
COPY scheduler_core scheduler_core
COPY operator operator
RUN /opt/uv/bin/uv sync --no-cache --frozen --no-dev --no-editable

FROM ${BASE_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="bayplan" \
      org.opencontainers.image.description="A Kubernetes scheduler that is managed as an operator" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/bayplan /opt/bayplan
# The root file system is read-only where the chart runs this: nothing may want to write byte code.
ENV PATH=/opt/bayplan/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# A number, so that the kubelet can tell that it is not root without the image's user table.
USER 65532:65532
EXPOSE 10259
# For engines without probes of their own; Kubernetes uses the chart's.
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=6 \
    CMD ["python3", "-c", "import http.client; c = http.client.HTTPConnection('127.0.0.1', 10259, timeout=4); c.request('GET', '/livez'); raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["bayplan"]
CMD ["run"]

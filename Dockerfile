# docker build -t adaptive-gamma:0.1.0 .
# Everything that is installed is pinned by hash in requirements/ (make lock). BASE needs Python 3.11 or newer and its venv.
ARG BASE=python:3.12-slim

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY requirements/build.txt requirements/runtime.txt requirements/
RUN python3 -m venv /opt/build \
    && python3 -m venv --without-pip /opt/adaptive-gamma \
    && /opt/build/bin/pip install --quiet --require-hashes --only-binary :all: -r requirements/build.txt \
    && /opt/build/bin/pip --python /opt/adaptive-gamma/bin/python install --quiet --require-hashes \
        --only-binary :all: -r requirements/runtime.txt
COPY pyproject.toml README.md LICENSE ./
COPY policies policies
COPY adaptive_gamma adaptive_gamma
# The libraries' own tests are a tenth of their size.
RUN /opt/build/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheel . \
    && /opt/build/bin/pip --python /opt/adaptive-gamma/bin/python install --quiet --no-deps --no-index /wheel/*.whl \
    && find /opt/adaptive-gamma/lib -type d -name tests -prune -exec rm -rf {} +

FROM ${BASE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="adaptive-gamma" \
      org.opencontainers.image.description="Routes LLM requests between speculative and plain replicas by live load and acceptance" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# An installer has no work here: what is in the image is what was locked.
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin adaptive-gamma \
    && install -d -o 10001 -g 10001 /var/lib/adaptive-gamma \
    && if python3 -m pip --version > /dev/null 2>&1; then python3 -m pip uninstall --quiet --yes pip; fi
COPY --from=build /opt/adaptive-gamma /opt/adaptive-gamma
ENV PATH=/opt/adaptive-gamma/bin:${PATH} PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
EXPOSE 8080 9090 9002
# Of serve with its admin port as it comes; an orchestrator's own probes are the better ones.
HEALTHCHECK --interval=10s --timeout=5s --start-period=15s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9090/livez', timeout=4)"]
ENTRYPOINT ["adaptive-gamma"]
CMD ["--help"]

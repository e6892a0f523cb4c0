# Strandline with Python and Java: `docker build -t strandline .`, then `docker run --rm strandline demo`, or with
# a volume for the warehouse: `docker run --rm -v shop:/warehouse strandline init`, then
# `docker run --rm -v shop:/warehouse strandline sql "SHOW TABLES"`.
FROM debian:bookworm-slim AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/strandline
WORKDIR /source
COPY constraints.txt ./
# What rarely changes comes first, so that a change of the code does not fetch Spark again.
RUN /opt/strandline/bin/pip install --no-cache-dir pyspark -c constraints.txt
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN /opt/strandline/bin/pip install --no-cache-dir '.[server]' -c constraints.txt

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/strandline /opt/strandline
RUN useradd --create-home --uid 1000 strandline && install -d -o strandline /warehouse
ENV PATH=/opt/strandline/bin:$PATH STRANDLINE_WAREHOUSE=/warehouse
USER strandline
WORKDIR /home/strandline
VOLUME /warehouse
ENTRYPOINT ["strandline"]
CMD ["--help"]

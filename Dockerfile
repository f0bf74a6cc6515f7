# albert-data for CPUs; docs/guides/docker.md says how it is made and used. It needs BuildKit (`docker build` has it).
FROM python:3.13-slim

# torch from this index is the one for CPUs: PyPI's brings gigabytes of CUDA packages.
RUN --mount=type=bind,rw,target=/src \
    PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu \
    pip install --no-cache-dir --constraint /src/constraints.txt '/src[train]'

# Any user may run it, as by `--user "$(id -u)"`: the kernels and the caches are everybody's who is in the container.
# HOME and USER are for those whom the image does not know.
ENV NUMBA_CACHE_DIR=/opt/kernels XDG_CACHE_HOME=/cache HF_HOME=/cache/huggingface HOME=/cache USER=albert
RUN useradd --uid 1000 --no-create-home --home-dir /cache albert \
    && install --directory --owner albert --mode 1777 /opt/kernels /cache /data
USER 1000:1000
WORKDIR /data

# Compiles the kernels, for processors as the one that makes the image; on others the first command compiles them.
RUN albert-data quickstart -o /tmp/image/first --minutes 0 > /dev/null \
    && rm -r /tmp/image \
    && chmod -R a+rwX /opt/kernels

VOLUME /cache
ENTRYPOINT ["albert-data"]
CMD ["--help"]

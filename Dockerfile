# CPU image: docker build -t congruence . && docker run --rm -v "$PWD:/data" congruence compare a.npy b.npy
FROM python:3.12-slim
COPY pyproject.toml README.md LICENSE /src/
COPY src /src/src
RUN pip install --no-cache-dir '/src[h5ad,hdf5,zarr,lightgbm]'
RUN useradd --create-home user && mkdir /data && chown user /data
USER user
WORKDIR /data
ENTRYPOINT ["congruence"]
CMD ["--help"]

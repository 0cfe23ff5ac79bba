# Debian 12 with what tools/bootstrap installs, and nothing else. The checkout is mounted, not copied:
#   docker build -t flashsteps . && docker run --rm -it -u "$(id -u):$(id -g)" -v "$PWD":/flashsteps flashsteps make tour
# With --build-arg BROWSER=--browser it has Chromium, in which `make test-all` opens the book.
FROM debian:12-slim
WORKDIR /flashsteps
COPY tools/bootstrap tools/
COPY requirements.txt ./
ARG BROWSER
RUN tools/bootstrap $BROWSER

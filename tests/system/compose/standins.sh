#!/bin/sh
# Builds images that stand in for the public ones of Dockerfile and docker-compose.yml, where none can be pulled: Debian with the
# distribution's Python, HAProxy and Redis. They prove our files, not those images. podman prefers them to the public ones for as long as
# they are there.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

stand_in() { # IMAGE PACKAGES [COMMAND]: a small Debian with these packages, and one more step inside it
    rm -rf "$work/root"
    debootstrap --variant=minbase --include="ca-certificates,$2" bookworm "$work/root" >"$work/log" || {
        tail -n 20 "$work/log" >&2
        exit 1
    }
    [ $# -lt 3 ] || chroot "$work/root" sh -c "$3"
    rm -rf "$work"/root/var/cache/apt/* "$work"/root/var/lib/apt/lists/* "$work"/root/usr/share/doc
    tar -C "$work/root" -c . | podman import --quiet - "$1"
}

image_of() { # SERVICE: the image that docker-compose.yml names for it
    sed -n "/^  $1:/,/^    image:/s/^    image: //p" docker-compose.yml
}

cd "$(dirname "$0")/../../.."
stand_in "$(sed -n 's/^ARG PYTHON_IMAGE=//p' Dockerfile)" python3,python3-venv
stand_in "$(image_of balancer)" haproxy
stand_in "$(image_of redis)" redis-server 'ln -s redis-server /usr/bin/valkey-server; ln -s redis-cli /usr/bin/valkey-cli; install -d -o 999 -g 1000 /data'

#!/bin/sh
# Builds the image, brings docker-compose.yml up and sends steady traffic through the load balancer, while one instance is killed
# and another is drained away. Fails if a message is lost or out of order.
#
# Needs buildah, podman, podman-compose and the project's .venv. BUILD_OPTIONS go to buildah, for example to bind a package index.
set -eu
cd "$(dirname "$0")/../../.."
SECONDS_OF_TRAFFIC=45
PROJECT=relay-run # its volumes are removed at the end: never those of a project in use

note() {
    echo "== $*" >&2
}

compose() {
    podman-compose --in-pod false --project-name "$PROJECT" "$@"
}

containers() { # SERVICE
    podman ps --quiet --filter "label=com.docker.compose.project=$PROJECT" --filter "label=com.docker.compose.service=$1"
}

instances() {
    containers relay
}

ready_instances() {
    for id in $(instances); do
        podman exec "$id" python3 -c 'import urllib.request as r; r.urlopen("http://127.0.0.1:8080/readyz")' 2>/dev/null && echo "$id"
    done
    return 0
}

wait_for_ready() { # COUNT
    for _ in $(seq 60); do
        [ "$(ready_instances | wc -l)" -eq "$1" ] && return
        sleep 1
    done
    note "there are not $1 ready instances"
    podman ps --all >&2
    exit 1
}

finish() {
    code=$?
    [ "$code" -eq 0 ] || compose logs >&2 || true
    compose down --volumes >/dev/null 2>&1 || true
    exit "$code"
}

[ -e .env ] || deploy/make-env
. ./.env
export RELAY_TOKEN_SECRET LISTEN=127.0.0.1:18080 OPEN_TENANTS=demo,traffic

note "building"
# shellcheck disable=SC2086
buildah build --quiet --format docker --target relay --tag agent-relay:0.1.0 ${BUILD_OPTIONS:-} .
trap finish EXIT
trap 'exit 1' INT TERM

note "up"
compose up --detach --no-build
wait_for_ready 3

note "health checks of the image and of the server"
for id in $(instances) $(containers redis); do
    podman healthcheck run "$id"
done

note "from one instance to another"
podman exec "$(instances | head -n 1)" relay send bob 'from one instance'
podman exec "$(instances | tail -n 1)" timeout 5 relay listen --as bob | grep --max-count 1 'from one instance'

note "traffic"
.venv/bin/python -m tests.system.compose.traffic --url "http://$LISTEN" --seconds "$SECONDS_OF_TRAFFIC" &
traffic=$!

sleep 10
victim=$(instances | head -n 1)
note "kill -9 of instance $victim"
kill -9 "$(podman inspect --format '{{.State.Pid}}' "$victim")"
wait_for_ready 3  # it was started again

sleep 15
victim=$(instances | tail -n 1)
note "down to two instances: $victim is told to stop, as by docker compose --scale relay=2"
podman stop --time 40 "$victim"
podman logs "$victim" 2>&1 | grep -q '"event":"drained"' || {
    note "it did not drain"
    exit 1
}
wait "$traffic"
wait_for_ready 2
note "nothing was lost"

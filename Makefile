.PHONY: help run test quick soak check compose bench

help: ## print this help
	@sed -n 's/^\([a-z]*\):.*## /  make \1	/p' Makefile

run: ## start the embedded server, two instances and the workers
	./run

test: ## run every check and every test
	./test

quick: check ## lint, types, unit and script tests: less than a minute on two idle cores
	.venv/bin/pytest tests/unit tests/integration/scripts -n 2 --dist loadfile

soak: ## fuzz the client with 10,000 random examples of each kind: about half an hour
	.venv/bin/pytest tests/unit/client/test_fuzz.py tests/unit/client/test_fuzz_network.py \
		--hypothesis-profile soak --timeout 0

check: ## ruff, mypy, import-linter
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports

compose: ## build the image and run compose under traffic; needs podman-compose and buildah
	tests/system/compose/run.sh

bench: ## measure this machine
	.venv/bin/relay bench

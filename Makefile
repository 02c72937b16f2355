.PHONY: help run test check bench

help: ## print this help
	@sed -n 's/^\([a-z]*\):.*## /  make \1	/p' Makefile

run: ## start the embedded server, two instances, the workers and the dashboard
	./run

test: ## run every check and every test
	./test

check: ## ruff, mypy, import-linter
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports

bench: ## measure this machine
	.venv/bin/relay bench

"""`relay`, and `python -m relay.cli`. If only the client is installed, it says what is missing."""

import sys


def main() -> None:
    try:
        from relay.cli.main import main as commands
    except KeyboardInterrupt:
        sys.exit(130)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("relay", "workers", "spark", "bench"):
            raise
        sys.exit(f"relay: the commands need {error.name}: pip install 'agent-relay[server]'")
    commands()


if __name__ == "__main__":
    main()

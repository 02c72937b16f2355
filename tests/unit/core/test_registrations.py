"""How fast new agents may come to be."""

import pytest

from relay.core.presence import registrations
from relay.core.presence.registrations import Registrations
from relay.errors import RateLimited


def granted(
    limiter: Registrations, count: int, remote: str = "10.0.0.1", now: float = 0.0, tenant: str = "demo"
) -> int:
    """How many of so many may register."""
    done = 0
    for n in range(count):
        try:
            limiter.one_more(remote, f"{tenant}/a-{n}", now)
        except RateLimited:
            continue
        done += 1
    return done


def test_a_remote_address_registers_a_burst_and_then_at_its_rate() -> None:
    limiter = Registrations(per_s=2)

    assert granted(limiter, 100) == 20
    assert granted(limiter, 100, now=5.0) == 10
    assert granted(limiter, 100, now=1_000.0) == 20


def test_who_must_wait_is_told_how_long() -> None:
    limiter = Registrations(per_s=2)
    granted(limiter, 20)

    with pytest.raises(RateLimited) as refused:
        limiter.one_more("10.0.0.1", "demo/late", 0.0)

    assert refused.value.details == {"retry_after_ms": 500}


def test_others_are_not_disturbed_until_the_tenant_has_had_its_share() -> None:
    limiter = Registrations(per_s=2)

    by_many = sum(granted(limiter, 100, remote=f"10.0.1.{n}") for n in range(50))

    assert by_many == 200
    assert granted(limiter, 100, remote="10.0.2.1", tenant="other") == 20


def test_no_more_remote_addresses_are_remembered_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registrations, "MAX_BUCKETS", 10)
    buckets = registrations.Buckets(1.0)

    for n in range(100):
        buckets.take(f"10.0.0.{n}", now=0.0)

    assert len(buckets._left) <= 10

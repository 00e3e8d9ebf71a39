"""The table of live profiles."""

from __future__ import annotations

import pytest

from scheduler_core.errors import ConfigError
from scheduler_core.runtime.framework_instance import ProfileTable, queue_sort_of
from tests.support.recording_plugins import Journal, recorder
from tests.support.scheduling import profile, rig


def test_a_swap_is_atomic() -> None:
    """Every callback of a swap gets the table with all changes, and old instances are closed after the callbacks."""
    journal = Journal()
    made = rig([recorder("Rec", journal)], serve=False)
    calls: list[tuple[str, list[str], int]] = []

    def on_change(name: str) -> None:
        calls.append((name, sorted(live.revision for live in table), len(journal.plugins_at("close"))))

    table = ProfileTable(on_change)
    first, second = made.scheduler.build(profile("a")), made.scheduler.build(profile("b"))
    table.swap(first, second)
    newer = [made.scheduler.build(profile(name, percentage=50)) for name in ("a", "b")]
    table.swap(*newer)
    revisions = sorted(instance.revision for instance in newer)
    assert calls[2:] == [("a", revisions, 0), ("b", revisions, 0)]
    assert journal.plugins_at("close") == ["Rec", "Rec"]


def test_withdraw() -> None:
    """A withdrawn profile is removed and its instance closed; a second withdrawal has no effect."""
    journal = Journal()
    made = rig([recorder("Rec", journal)], serve=False)
    changed: list[str] = []
    table = ProfileTable(changed.append)
    table.swap(made.scheduler.build(profile("a")))
    table.withdraw("a")
    table.withdraw("a")
    assert ("a" in table, len(table), changed, journal.plugins_at("close")) == (False, 0, ["a", "a"], ["Rec"])


def test_a_rejected_swap_changes_nothing() -> None:
    """A rejected swap leaves the table unchanged and calls no callback."""
    made = rig(serve=False)
    changed: list[str] = []
    table = ProfileTable(changed.append)
    instance, other = made.scheduler.build(profile("a")), made.scheduler.build(profile("b"))
    table.swap(instance)
    sorter = type("Other", (type(other.queue_sort),), {"name": "Other"})
    other.queue_sort = sorter(None, other.queue_sort.handle)
    assert queue_sort_of(other) == ("Other", "")
    with pytest.raises(ConfigError, match="all profiles must use the same plugin with the same args"):
        table.swap(other)
    assert (list(table), changed) == ([instance], ["a"])


def test_the_only_profile_may_change_its_order() -> None:
    """The only profile can be replaced by one with another QueueSort plugin."""
    made = rig(serve=False)
    table = ProfileTable(lambda _name: None)
    table.swap(made.scheduler.build(profile("a")))
    newer = made.scheduler.build(profile("a", percentage=50))
    newer.queue_sort = type("Other", (type(newer.queue_sort),), {"name": "Other"})(None, newer.queue_sort.handle)
    assert table.disagreement([newer]) is None
    table.swap(newer)
    assert table.get("a") is newer

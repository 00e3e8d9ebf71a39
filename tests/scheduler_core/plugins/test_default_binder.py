"""DefaultBinder: the binding that it writes, and the status for a failed write."""

import pytest

from scheduler_core.errors import ClusterWriteError, ConflictError, NotFoundError, WriteTimeoutError
from scheduler_core.framework.cycle_state import CycleState, annotate_bind
from scheduler_core.framework.status import SUCCESS, error
from scheduler_core.plugins.default_binder import DefaultBinder
from scheduler_core.ports import Binding
from tests.support.builders import pod
from tests.support.handles import FakeHandle
from tests.support.recording_writer import RecordingWriter
from tests.support.tables import table


async def test_bind_names_pod_and_node() -> None:
    """The binding has the pod's UID, so that it cannot bind a later pod of the same name."""
    handle = FakeHandle()
    info = handle.nodes.compile_pod(pod("web", namespace="shop", uid="uid-7"))
    assert await DefaultBinder(None, handle).bind(CycleState(), info, "node-3") == SUCCESS
    assert handle.writer.bindings == [Binding("shop", "web", "uid-7", "node-3")]


async def test_bind_writes_the_annotations_of_the_attempt() -> None:
    """Annotations that plugins add to the state are written with the binding; those of a clone are not."""
    handle, state = FakeHandle(), CycleState()
    annotate_bind(state, "example.com/gpu", "0")
    dry_run = state.clone()
    annotate_bind(state, "example.com/port", "7")
    annotate_bind(dry_run, "example.com/other", "1")
    info = handle.nodes.compile_pod(pod("web", namespace="shop", uid="uid-7"))
    assert await DefaultBinder(None, handle).bind(state, info, "node-3") == SUCCESS
    annotations = (("example.com/gpu", "0"), ("example.com/port", "7"))
    assert handle.writer.bindings == [Binding("shop", "web", "uid-7", "node-3", annotations)]


@table(
    "failure",
    ("already bound", ConflictError("pod web is already assigned to node node-1")),
    ("deleted", NotFoundError('pods "web" not found')),
    ("another error", ClusterWriteError("admission refused it")),
)
async def test_a_failed_write_is_an_error_status(failure: ClusterWriteError) -> None:
    """The status has the API server's message, and the plugin does not retry."""
    handle = FakeHandle()
    handle.writer.fail_binds([failure])
    info = handle.nodes.compile_pod(pod("web"))
    assert await DefaultBinder(None, handle).bind(CycleState(), info, "node-3") == error(str(failure))
    assert len(handle.writer.attempted) == 1


async def test_a_write_timeout_is_raised() -> None:
    """A timeout is not an error status, because the pod may be bound and the binding cycle must read it."""
    handle = FakeHandle()
    handle.writer.fail_binds([WriteTimeoutError("no answer within 30 s")])
    info = handle.nodes.compile_pod(pod("web"))
    with pytest.raises(WriteTimeoutError):
        await DefaultBinder(None, handle).bind(CycleState(), info, "node-3")


async def test_other_exceptions_are_raised() -> None:
    """An exception that is not a cluster error is raised, not converted to a status."""

    class BrokenWriter(RecordingWriter):
        async def bind(self, binding: Binding) -> None:
            raise ZeroDivisionError

    handle = FakeHandle(writer=BrokenWriter())
    info = handle.nodes.compile_pod(pod("web"))
    with pytest.raises(ZeroDivisionError):
        await DefaultBinder(None, handle).bind(CycleState(), info, "node-3")

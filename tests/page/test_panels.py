"""Each panel shows the documents of a cluster of known content."""

from __future__ import annotations

from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys

from hack.browser import Browser
from tests.page.conftest import Serve
from tests.page.documents import documents, known, node_map, pending_work, problems, rates
from tests.page.page_server import PageServer
from tests.support.tables import table

TIMES = "\u00d7"


def rows(browser: Browser, selector: str) -> list[list[str]]:
    """Return the text of all cells of the first table below a selector, row by row."""
    script = """return [...document.querySelector(`${arguments[0]} table`).tBodies[0].rows]
        .map((row) => [...row.cells].map((cell) => cell.innerText.replace(/\\s+/g, ' ').trim()))"""
    found: list[list[str]] = browser.run(script, selector)
    return found


def test_pending_work(browser: Browser, page: PageServer) -> None:
    """A group shows its count, cause, nearest miss, the event that would help, examples and command."""
    browser.open(page.url)
    browser.shows("#pending", "1,000 pods in 15 groups")
    group = '[data-id="group-0"]'
    for text in (
        "306",
        "oldest 3h3m",
        "Insufficient cpu",
        "unschedulable",
        "NodeResourcesFit",
        "Nearest miss worker-0412 lacks 1.5 cores of cpu",
        "Would help a pod on worker-0412 with 1.5 cores or more ends",
        "batch/render-0 batch/render-1",
        "bayplan explain -n batch render-0",
    ):
        assert text in browser.text(group), text
    assert len(browser.all("#pending .group")) == 10
    browser.find("#pending .more").click()
    browser.until(lambda: len(browser.all("#pending .group")) == 15, "all groups are shown")
    assert not browser.all("#pending .more")


def test_ages_grow_between_documents(browser: Browser, page: PageServer) -> None:
    """The page increments ages itself, because a change of ages alone sends no document."""
    page.documents["gangs"]["gangs"][2]["seconds"] = 0.0
    browser.open(page.url)
    browser.shows('[data-id="sim/weather"]', "waits 2s")


def test_a_pod(browser: Browser, page: PageServer) -> None:
    """An example of a group links to the explanation of the pod, and the page's URL is a permalink."""
    browser.open(page.url)
    browser.find('[data-id="group-0"] .names a').click()
    browser.shows("#work", "batch/render-0 has no feasible node: 4988 of 5000 lack cpu")
    assert browser.driver.current_url.endswith("#/work/pod/batch/render-0")
    assert rows(browser, "#work .columns") == [
        ["NodeResourcesFit", "4,988", f"4,988 {TIMES} Insufficient cpu 1,204 {TIMES} Insufficient memory"],
        ["TaintToleration", "12", f"12 {TIMES} node(s) had untolerated taint(s)"],
    ]
    shown = browser.text("#work")
    for text in (
        "NodeResourcesFit: cpu: needs 4 cores, free 2.5 cores (preemption may help)",
        "evicts 1 pod on worker-0099 ! violates 1 PodDisruptionBudget",
        "then it fits on worker-0412",
        "choice worker-0412 runner-up worker-0007",
        "Total 630 616 602",
        "Show 3 more of 3",
    ):
        assert text in shown, text
    assert browser.text("#work .commands").startswith("bayplan explain -n batch render-0 --server 127.0.0.1:")


def test_a_pod_name_is_entered(browser: Browser, page: PageServer) -> None:
    """A name without a namespace means the namespace default; a missing pod is reported."""
    browser.accept_status(404)
    page.documents["work?namespace=default&pod=web"] = known("pod")
    browser.open(page.url)
    field = browser.find('#work input[name="name"]')
    field.send_keys("web", Keys.ENTER)
    browser.shows("#work", "pod default/web")
    field = browser.find('#work input[name="name"]')
    assert field.get_attribute("value") == "default/web"
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(Keys.DELETE, "ns/gone", Keys.ENTER)
    browser.shows("#work", "work?namespace=ns&pod=gone does not exist")
    assert "has no feasible node" not in browser.text("#work")


def test_a_gang(browser: Browser, page: PageServer) -> None:
    """The panel of gangs shows the missing members and links to the explanation by domain."""
    browser.open(page.url + "#/gangs")
    browser.shows("#gangs", "3 gangs wait")
    evaluate, train = browser.text('[data-id="ml/evaluate"]'), browser.text('[data-id="ml/train"]')
    assert "0 / 8" in evaluate
    assert "0 scheduled, 5 waiting, 8 to be scheduled together, 3 missing" in evaluate
    assert "Reserved zone-0 (24 nodes)" in train
    assert "topology.kubernetes.io/zone=zone-0 9 topology.kubernetes.io/zone=zone-1 6" in train
    browser.find('[data-id="ml/train"] h3 a').click()
    browser.shows("#work", "41 of the 46 members that must be placed together fit in zone-0")
    assert rows(browser, "#work")[0][:2] == ["topology.kubernetes.io/zone=zone-0", "41 / 46"]
    assert "waits for web/cache-1" in browser.text("#work")


def test_the_map_by_keyboard(browser: Browser, page: PageServer) -> None:
    """Arrow keys select nodes; the selected node is shown as text with all resources."""
    browser.open(page.url + "#/nodes?resource=memory")
    box = browser.find("#nodes .map")
    assert browser.find("#nodes select").get_attribute("value") == "memory"
    box.send_keys(Keys.HOME)
    browser.shows("#nodes .aside", "Node worker-0000 zone zone-0, rack rack-00;")
    box.send_keys(Keys.ARROW_RIGHT)
    browser.shows("#nodes .aside", "Node worker-0064 zone zone-0, rack rack-00;")
    box.send_keys(Keys.ARROW_DOWN)
    browser.until(lambda: "worker-0064" not in browser.text("#nodes .aside .box"), "the node below is selected")
    box.send_keys(Keys.END)
    browser.shows("#nodes .aside", "rack rack-15;")


def test_the_map_by_pointer(browser: Browser, serve: Serve) -> None:
    """The cell under the pointer is selected; the states unschedulable and not ready are also shown as text."""
    found = documents(nodes=8)
    page = serve(found)
    browser.open(page.url + "#/nodes")
    browser.find("#nodes .map canvas")
    browser.run("scrollTo(0, document.querySelector('.map').offsetTop - 100)")
    box = browser.run(
        "const box = document.querySelector('.map canvas').getBoundingClientRect(); return [box.x, box.y]"
    )
    pointed, states = set(), set()
    # Cells are 26 pixels high and about 100 wide.
    for y in range(0, 320, 20):
        for x in range(40, 300, 60):
            at = {"x": box[0] + x, "y": box[1] + y}
            browser.command("Input.dispatchMouseEvent", type="mouseMoved", **at)
            pointed.add(browser.text("#node-keys").partition(":")[0])
            browser.command("Input.dispatchMouseEvent", type="mousePressed", button="left", clickCount=1, **at)
            browser.command("Input.dispatchMouseEvent", type="mouseReleased", button="left", clickCount=1, **at)
        text = browser.text("#nodes .aside .box")
        states |= {state for state in ("unschedulable", "not ready") if state in text}
    assert states == {"unschedulable", "not ready"}
    assert {f"worker-{node:04}" for node in range(8)} <= pointed


def test_room_for_a_shape(browser: Browser, page: PageServer) -> None:
    """The result is shown as numbers, by domain and on the map; the shape is in the URL."""
    browser.open(page.url + "#/nodes")
    browser.find('#nodes input[name="room"]').send_keys("cpu=4,memory=8Gi", Keys.ENTER)
    browser.shows("#nodes .aside", "58 such pods have room on 29 feasible nodes.")
    assert browser.driver.current_url.endswith("#/nodes?room=cpu%3D4%2Cmemory%3D8Gi")
    assert "has room" in browser.text("#nodes .legend")


@pytest.mark.parametrize(
    ("number", "verdict"),
    [
        (8, "8 pods fit in topology.kubernetes.io/zone=zone-0"),
        (64, "16 of 64 pods fit in topology.kubernetes.io/zone=zone-0"),
    ],
)
def test_room_in_one_domain(browser: Browser, page: PageServer, number: int, verdict: str) -> None:
    """Domains with room for all pods are listed, with the dry run; if they do not fit, why the next pod does not."""
    browser.open(f"{page.url}#/nodes?room=cpu%3D4%2Cmemory%3D8Gi&count={number}&key=topology.kubernetes.io%2Fzone")
    browser.shows("#nodes .aside", verdict)
    nodes = [[f"worker-{at:04}", "2"] for at in range(0, 28 * min(number, 16) // 2, 28)]
    domains = [["zone-0", "16", "-"], ["zone-1", "14", "-"], ["zone-2", "14", "-"], ["zone-3", "14", "-"]]
    assert rows(browser, '#nodes [role="status"]:has(table) .scroll') == (domains if number == 8 else nodes)
    assert ("The next pod: 0/5000 nodes are available" in browser.text("#nodes .aside")) == (number == 64)


def test_room_for_an_existing_pod(browser: Browser, page: PageServer) -> None:
    """A name instead of requests looks for room for copies of that pod."""
    browser.open(page.url + "#/nodes")
    browser.find('#nodes input[name="room"]').send_keys("batch/render-0", Keys.ENTER)
    browser.shows("#nodes .aside", "batch/render-0 requests 4 cpu, 8Gi memory, profile batch")
    assert browser.driver.current_url.endswith("#/nodes?pod=batch%2Frender-0")
    assert "bayplan explain -n batch render-0" in browser.text("#nodes .aside")


def test_room_for_a_manifest(browser: Browser, page: PageServer) -> None:
    """A pasted manifest is sent as the body, and is not part of the URL."""
    browser.open(page.url + "#/nodes")
    browser.find("#nodes details summary").click()
    browser.find('#nodes textarea[name="manifest"]').send_keys("kind: Pod")
    browser.find('#nodes form button[type="submit"]').click()
    browser.shows("#nodes .aside", "shop/web requests 4 cpu, 8Gi memory")
    assert page.bodies[0] == "kind: Pod"
    assert browser.driver.current_url.endswith("#/nodes")
    browser.find('#nodes form button[type="button"]').click()
    browser.until(lambda: "shop/web" not in browser.text("#nodes .aside"), "the result is cleared")


def test_the_card_of_a_node(browser: Browser, page: PageServer) -> None:
    """A link to a node selects it; its card has amounts, taints, the reservation, and pods with links."""
    browser.open(page.url + "#/nodes?node=worker-0003")
    browser.shows("#nodes .aside", "Node worker-0003")
    browser.shows("#nodes .aside", "Reserved for gang ml/train")
    assert rows(browser, "#nodes .aside") == [
        ["pods", "26", "110", "84", ""],
        ["cpu", "33.984", "32", "0", ""],
        ["memory", "81Gi", "128Gi", "47Gi", ""],
    ]
    assert "dedicated=db:NoSchedule" in browser.text("#nodes .aside")
    browser.find('#nodes .aside a[href="#/work/pod/web/cache-1"]')
    browser.find("#nodes .map").send_keys(Keys.HOME)
    browser.shows("#nodes .aside", "Node worker-0000")
    assert browser.driver.current_url.endswith("node=worker-0000")


def test_an_invalid_shape(browser: Browser, page: PageServer) -> None:
    """The message of the operator is shown."""
    browser.accept_status(404)
    browser.open(page.url + "#/nodes?room=cpus")
    browser.shows("#nodes .aside", "room?requests=cpus does not exist")


def test_fragmentation(browser: Browser, page: PageServer) -> None:
    """Amounts are shown in the unit of their resource."""
    browser.open(page.url)
    browser.shows("#nodes", "Fragmentation")
    assert rows(browser, "#nodes .box:last-child") == [
        ["cpu", "1,457.056 cores", "25.376 cores", "21.4 %"],
        ["memory", "11,984Gi", "105.1Gi", "-"],
        ["example.com/gpu", "74", "8", "45 %"],
    ]


def test_profiles(browser: Browser, page: PageServer) -> None:
    """The panel shows conditions, queue, revisions, shadow and error of each profile."""
    browser.open(page.url + "#/profiles/latency")
    browser.shows("#profile-latency", 'spec.plugins.score.enabled[0].name: there is no plugin "NodeNme"')
    assert "chosen" in (browser.find("#profile-latency").get_attribute("class") or "")
    batch = browser.text("#profile-batch")
    assert "active 110 backoff 0 unschedulable 761 gated 129 scheduled 48,213" in batch
    assert "3 5d6c7f9b8a ✓ live" in batch
    assert "by kubectl-edit: edit podMaxBackoffSeconds: 10 → 20 Diff" in batch
    assert "MostAllocated" not in batch
    assert "oldest stored revision" in batch
    shadow = browser.text("#profile-batch-next")
    assert "agrees in 97.8 % of 4,000 compared decisions differed 88, other node 74" in shadow
    assert "Empty nodes 12 61" in shadow
    assert "batch/render-5 worker-0051 worker-0452 NodeResourcesFit: 81 instead of 64" in shadow
    assert "Last error NodeResourcesFit: division by zero" in browser.text("#profile-latency")


def test_the_diff_of_a_revision(browser: Browser, page: PageServer) -> None:
    """The permalink of a revision opens its diff from the revision before, with the command that prints it."""
    browser.open(page.url + "#/profiles/batch/2")
    browser.shows("#profile-batch details[open]", "- type: LeastAllocated + type: MostAllocated")
    assert len(browser.all("#profile-batch details[open]")) == 1
    assert "bayplan history batch --diff 1 2 --resolved" in browser.text("#profile-batch details[open]")


def test_rates(browser: Browser, page: PageServer) -> None:
    """The last point is shown as text beside each line, and each objective is shown as met or not."""
    last = rates(pending=1_000)["points"][-1]
    browser.open(page.url + "#/rates")
    browser.shows("#rates", f"bound {last[1]} /s")
    assert f"waiting {last[3]:,}" in browser.text("#rates")
    assert ["Decisions", "99 % of the attempts end within 1 s", "99 % within 0.0135 s", "✓ met"] in rows(
        browser, "#rates"
    )
    assert "lost binds 2 conflicts 4" in browser.text("#rates")


def test_problems(browser: Browser, page: PageServer) -> None:
    """The strip above the panels names what is wrong, and each entry links to the panel that shows more."""
    browser.open(page.url)
    browser.shows(".problems", "profile latency: spec rejected")
    assert len(browser.all(".problems li")) == 6
    links = [each.get_attribute("href") or "" for each in browser.all(".problems a")]
    assert [link.partition("#")[2] for link in links] == [each["link"][1:] for each in problems()]
    browser.all(".problems a")[0].click()
    assert "chosen" in (browser.find("#profile-latency").get_attribute("class") or "")
    page.push("overview", {**page.documents["overview"], "problems": []})
    browser.until(lambda: not browser.all(".problems"), "no strip is shown without problems")


def test_reservations(browser: Browser, page: PageServer) -> None:
    """The panel shows phase, used room, priority, end and nodes, which link to their cards."""
    browser.open(page.url + "#/reservations")
    browser.shows("#reservations", "5 reservations, 2 held")
    found = rows(browser, "#reservations")
    assert found[0] == [
        "ml/simulation",
        "\u2715 Impossible",
        "0 / 16",
        "0",
        "no limit",
        "The pods never fit on the present nodes: no node has 16 example.com/gpu",
    ]
    assert found[1][:5] == ["batch/nightly", "\u2713 Reserved", "1 / 4", "high", "2026-11-23T14:00:00Z"]
    assert found[1][5].split() == ["worker-0003", "2", "worker-0007", "1"]
    assert found[2][5].endswith("and 2 more nodes")
    assert [each[1] for each in found[3:]] == ["i Consumed", "\u2013 Expired"]
    browser.all("#reservations td a")[0].click()
    browser.shows("#nodes .aside", "worker-0003")
    off = {"isOn": False, "total": 0, "reservations": [], "omitted": 0, "command": "bayplan reserve"}
    page.push("reservations", off)
    browser.shows("#reservations", "The feature gate NodeReservation is off")
    page.push("reservations", {**off, "isOn": True})
    browser.shows("#reservations", "There is no NodeReservation.")


def test_watches(browser: Browser, page: PageServer) -> None:
    """The panel names the objects that cannot be decoded, and why a watch is stale."""
    browser.open(page.url + "#/watches")
    browser.shows("#watches", "3 resources, 2 with problems")
    shown = documents(nodes=200, pending=1_000, groups=15)["overview"]
    assert rows(browser, "#watches") == [
        [
            "pods",
            "\u2715 undecodable objects",
            f"{shown['pods'] + shown['pending']:,}",
            "cannot be decoded: batch/odd: spec.containers: expected an array",
        ],
        [
            "resourceslices",
            "\u2715 stale",
            "64",
            "the API server has sent nothing for more than 300 s (maxWatchSilence)",
        ],
        ["nodes", "\u2713 current", "200", "-"],
    ]


def test_plans(browser: Browser, page: PageServer) -> None:
    """The panel exists if plans are made: each has its moves with the progress, the nodes, and what is left alone."""
    browser.open(page.url + "#/plans")
    browser.shows("#watches", "3 resources")
    assert not browser.all("#plans")
    assert not [each for each in browser.all("nav a") if "Plans" in each.text]
    page.push("plans", known("plans"))
    browser.shows("#plans", "2 RebalancePlans")
    browser.shows("#plans", "1 of 3 moves made, cost 3")
    assert rows(browser, '#plans [data-id="night"]') == [
        ["shop/web-1", "worker-0001", "worker-0002", "\u2713 Moved"],
        ["shop/web-2", "worker-0001", "worker-0003", "! Evicting"],
        ["shop/api-1", "worker-0004", "worker-0002", "\u2013 Pending"],
    ]
    nodes = [each.text for each in browser.all('#plans [data-id="night"] table:last-of-type tbody tr')][3:]
    assert nodes == ["worker-0001 1 0", "worker-0002 7 8", "worker-0003 6 7", "worker-0004 1 0"]
    browser.shows("#plans", "12 pods: its annotation safe-to-evict is false such as shop/cache-0, shop/cache-1")
    browser.shows("#plans", "there is no node worker-9999; correct or remove the name")
    assert [each.text for each in browser.all("nav a") if "Plans" in each.text] == ["Plans 2"]


def test_a_panel_that_fails(browser: Browser, page: PageServer) -> None:
    """A panel that cannot be built is stale, with its error, until its next document; the page is then not "live"."""
    browser.open(page.url)
    browser.shows(".connection", "live")
    page.push("failure", {"panel": "gangs", "error": "internal error: IndexError: out of bounds"})
    browser.shows("#gangs .stale", "This panel cannot be built: internal error: IndexError: out of bounds.")
    browser.shows("#gangs .stale", "It shows the state of")
    browser.shows(".connection", "stale: gangs")
    assert "3 gangs wait" in browser.text("#gangs")
    page.push("gangs", page.documents["gangs"])
    browser.shows(".connection", "live")
    assert not browser.all(".stale")


def test_rates_before_the_first_point(browser: Browser, page: PageServer) -> None:
    """The panel shows missing points, percentiles and verdicts as missing."""
    nothing = {"name": "Decisions", "objective": "99 % of the attempts end within 1 s", "value": "", "met": None}
    page.documents["rates"] = {**rates(), "points": [], "objectives": [nothing]}
    browser.open(page.url + "#/rates")
    browser.shows("#rates", "no data")
    page.push("rates", {**rates(), "points": [[1_795_438_000, 0, 0, 0, None, None]], "objectives": [nothing]})
    browser.shows("#rates", "queue to bound -")


def test_live_changes(browser: Browser, page: PageServer) -> None:
    """An event replaces the content of a panel without another request."""
    browser.open(page.url)
    browser.shows("#pending", "1,000 pods")
    before = len(page.requests)
    page.push("pending", pending_work(0, 0))
    browser.shows("#pending", "No pod waits.")
    page.push("pending", pending_work(12, 3))
    browser.shows("#pending", "12 pods in 3 groups")
    assert page.requests[before:] == []


def test_deltas_of_nodes(browser: Browser, page: PageServer) -> None:
    """A delta changes single nodes; after a missed delta the whole document is read."""
    browser.open(page.url)
    browser.find("#nodes .map").send_keys(Keys.HOME)
    browser.shows("#nodes .aside", "worker-0000")
    page.push("nodesDelta", {"version": 2, "since": 1, "nodes": [[0, 77, [505, 606, -1]]]})
    browser.shows("#nodes .aside .box", "77 pods")
    browser.until(lambda: "/page/data/node?name=worker-0000" in page.requests, "the card of the node is read")
    later = node_map(200)
    later["version"], later["pods"][0] = 9, 99
    page.documents["nodes"] = later
    page.push("nodesDelta", {"version": 9, "since": 8, "nodes": []})
    browser.shows("#nodes .aside .box", "99 pods")
    assert "/page/data/nodes" in page.requests


def test_the_copied_command(browser: Browser, page: PageServer) -> None:
    """The button copies the command that is shown."""
    browser.open(page.url)
    browser.find("#gangs .commands button")
    origin = page.url.removesuffix("/page/")
    browser.command(
        "Browser.grantPermissions", origin=origin, permissions=["clipboardReadWrite", "clipboardSanitizedWrite"]
    )
    browser.find('[data-id="group-0"] .command button').click()
    browser.shows('[data-id="group-0"] .command', "copied")
    server = origin.removeprefix("http://")
    copied = "return navigator.clipboard.readText()"
    assert browser.run(copied) == f"bayplan explain -n batch render-0 --server {server}"


@table(
    "address, option, metrics",
    ("default port", "http://127.0.0.1:10259/page/", "", "curl -s http://127.0.0.1:10259/metrics"),
    (
        "other port, with TLS",
        "https://localhost:24010/page/",
        " --server 127.0.0.1:24010",
        "curl -s -k https://localhost:24010/metrics",
    ),
    (
        "behind the proxy of the API server",
        "http://127.0.0.1:8001/api/v1/namespaces/bayplan/pods/https:a:10260/proxy/page/",
        "",
        "kubectl get --raw /api/v1/namespaces/bayplan/pods/https:a:10260/proxy/metrics",
    ),
    ("other host", "https://page.example.com/page/", "", "curl -s -k https://page.example.com/metrics"),
    ("report", "file:///tmp/report.html", "", ""),
)
def test_commands_reach_the_same_operator(
    browser: Browser, page: PageServer, address: str, option: str, metrics: str
) -> None:
    """Commands have the address of the operator unless they find it without."""
    browser.open(page.url)
    script = """const done = arguments[arguments.length - 1];
        import('./assets/commands.mjs').then(({ reachable, metricsCommand }) => {
            const at = new URL(arguments[0]);
            const commands = ['bayplan status', 'bayplan history a', 'kubectl get nodes'];
            done([...commands.map((each) => reachable(each, at)), metricsCommand(at)]);
        });"""
    assert browser.driver.execute_async_script(script, address) == [
        f"bayplan status{option}",
        "bayplan history a",
        "kubectl get nodes",
        metrics,
    ]


@pytest.mark.parametrize("panel", ["pending", "work", "gangs", "reservations", "nodes", "profiles", "rates", "watches"])
def test_permalinks(browser: Browser, page: PageServer, panel: str) -> None:
    """The panel of the URL is in view below the header, also after the panels above it have their content."""
    browser.open(f"{page.url}#/{panel}")
    browser.until(lambda: not browser.all('[aria-busy="true"]'), "all panels have content")
    script = "return document.getElementById(arguments[0]).getBoundingClientRect().top"
    at_end = "return innerHeight + scrollY >= document.documentElement.scrollHeight - 1"
    browser.until(lambda: 0 < browser.run(script, panel) < 120 or browser.run(at_end), f"{panel} is in view")


def test_sums_of_the_fixture() -> None:
    """The figures of the fixture, which the screenshots of the docs show, agree with each other."""
    found = documents()
    pod, profiles, gang = found["work?namespace=batch&pod=render-0"], found["profiles"]["profiles"], found["gangs"]
    by_node = _values(pod, "scores")
    assert [each["total"] for each in by_node] == [
        sum(one["weighted"] for one in each["plugins"].values()) for each in by_node
    ]
    shadow = profiles[1]["shadow"]
    assert shadow["otherNode"] + shadow["wouldReject"] + shadow["wouldPlace"] == shadow["differed"]
    assert shadow["agreed"] + shadow["differed"] == shadow["compared"]
    for profile in profiles:
        live = [each["revision"] for each in profile["revisions"] if each["live"]]
        assert live in ([], [profile["revision"]])
    queued = sum(profiles[0]["state"][place] for place in ("active", "backoff", "unschedulable", "gated"))
    assert queued == found["overview"]["pending"] == found["pending"]["total"]
    assert len(gang["gangs"]) == found["overview"]["gangsWaiting"]
    titles = " ".join(each["title"] for each in found["overview"]["problems"])
    assert f"{found['rates']['lostBinds']} binds lost" in titles
    assert f"{profiles[2]['state']['errors']} attempts ended in an error" in titles


def _values(document: Any, name: str) -> Any:
    """Return the value of the only field of this name, at any depth."""
    if isinstance(document, dict):
        if name in document:
            return document[name]
        document = list(document.values())
    found = (_values(each, name) for each in document) if isinstance(document, list) else ()
    return next((each for each in found if each is not None), None)

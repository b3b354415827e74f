"""Endpoints of a Service, against an API server that speaks list and watch, and does so badly where it is told to."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from adaptive_gamma.config import DiscoverySettings
from adaptive_gamma.discovery import Discovery
from adaptive_gamma.discovery.kube_access import find_access
from adaptive_gamma.discovery.kubernetes import KubernetesSource
from adaptive_gamma.errors import ConfigurationError
from tests.discovery.fake_api import endpoint, fake_api, slice_of
from tests.discovery.held_pace import HeldPace
from tests.support.gated_engine import until

ONE, TWO = endpoint("10.0.0.1", "p1"), endpoint("10.0.0.2", "p2")


def _settings(url: str, **kubernetes: Any) -> DiscoverySettings:
    services = [{"name": "spec", "service": "spec"}]
    return DiscoverySettings.model_validate(
        {"kind": "kubernetes", "services": services, "kubernetes": {"api_url": url, **kubernetes}}
    )


class Looking:
    """A discovery that runs, and what it has found."""

    def __init__(self, discovery: Discovery, pace: HeldPace) -> None:
        self.discovery = discovery
        self.pace = pace

    @property
    def names(self) -> list[str]:
        found = self.discovery.replicas([])
        return [f"{r.name}{'!' if r.name in found.not_ready else ''}" for r in found.replicas]

    @property
    def row(self) -> dict[str, Any]:
        return self.discovery.status()[0]

    async def finds(self, *names: str) -> None:
        wanted = [f"spec-{name}" for name in names]
        await until(lambda: self.names == wanted, f"{wanted}, not {self.names}")

    async def fails(self, reason: str, count: int = 1) -> None:
        await until(lambda: self.row["failures"].get(reason, 0) >= count, f"{count} x {reason} in {self.row}")

    async def watches(self) -> None:
        """Wait until the watch that was asked for has begun here too."""
        source = self.discovery._places[0].source
        assert isinstance(source, KubernetesSource)
        await until(lambda: source._began_at is not None, "a watch has begun")

    async def sleeps(self, count: int) -> None:
        await until(lambda: len(self.pace.sleeps) >= count, f"{count} sleeps, not {self.pace.sleeps}")

    async def after_the_wait(self, count: int) -> None:
        """Let the ``count``-th sleep be over."""
        await self.sleeps(count)
        self.pace.advance(self.pace.sleeps[-1])


@asynccontextmanager
async def _looking(url: str, *, pace: HeldPace | None = None, **kubernetes: Any) -> AsyncIterator[Looking]:
    pace = pace or HeldPace()
    looking = Looking(Discovery(_settings(url, **kubernetes), environment={}, pace=pace), pace)
    await looking.discovery.start()
    try:
        yield looking
    finally:
        await looking.discovery.stop()


async def test_listed_then_watched() -> None:
    async with fake_api() as api:
        api.put(slice_of("a", ONE))
        async with _looking(api.url) as looking:
            await looking.finds("p1")
            query = await api.asked("watch", 1)
            assert query == {
                "labelSelector": "kubernetes.io/service-name=spec",
                "watch": "1",
                "allowWatchBookmarks": "true",
                "resourceVersion": "101",
                "timeoutSeconds": "300",
            }
            api.put(slice_of("a", ONE, TWO))
            await looking.finds("p1", "p2")
            api.put(slice_of("b", endpoint("10.0.0.3", "p3")))
            await looking.finds("p1", "p2", "p3")
            api.put(slice_of("other", endpoint("10.0.0.4", "p4"), service="plain"))
            api.delete("a")
            await looking.finds("p3")
            assert (api.count("list"), api.count("watch"), looking.pace.sleeps) == (1, 1, [])


async def test_ready_flaps_and_a_pod_that_ends_get_nothing_new() -> None:
    async with fake_api() as api:
        api.put(slice_of("a", ONE, TWO))
        async with _looking(api.url) as looking:
            await looking.finds("p1", "p2")
            for _ in range(3):
                api.put(slice_of("a", ONE, endpoint("10.0.0.2", "p2", ready=False)))
                await looking.finds("p1", "p2!")
                api.put(slice_of("a", ONE, TWO))
                await looking.finds("p1", "p2")
            api.put(slice_of("a", endpoint("10.0.0.1", "p1", ready=False, terminating=True), TWO))
            await looking.finds("p1!", "p2")
            assert looking.row["not_ready"] == ["p1"]
            api.put(slice_of("a", endpoint(None, "p1", ready=False), TWO))
            await looking.finds("p2")
            assert looking.discovery.status()[0]["left_out"] == ["a: 1 endpoints without an address"]


async def test_a_list_of_several_pages() -> None:
    async with fake_api() as api:
        api.page_size = 2
        for number in range(5):
            api.put(slice_of(f"s{number}", endpoint(f"10.0.0.{number}", f"p{number}")))
        async with _looking(api.url) as looking:
            await looking.finds("p0", "p1", "p2", "p3", "p4")
            assert api.count("list") == 3


@pytest.mark.parametrize("by_status", [False, True])
async def test_an_expired_version_is_listed_anew(by_status: bool) -> None:
    """As it goes when a watch broke and what happened since is no longer kept."""
    async with fake_api() as api:
        api.put(slice_of("a", ONE))
        async with _looking(api.url, pace=HeldPace(hurried=True)) as looking:
            await looking.finds("p1")
            await api.asked("watch", 1)
            api.expiry_by_status = by_status
            api.put(slice_of("a", TWO), tell=False)
            api.forget_history()
            looking.pace.advance(60)
            api.end_watches()
            await looking.finds("p2")
            await api.asked("watch", 3)
            assert (api.count("list"), looking.row["failures"], looking.row["error"]) == (2, {"expired": 1}, None)


@pytest.mark.parametrize("by_status", [False, True])
async def test_a_version_that_expires_at_once_is_not_asked_for_in_a_tight_loop(by_status: bool) -> None:
    async with fake_api() as api:
        api.expiry_by_status = by_status
        api.oldest = 10**6
        async with _looking(api.url) as looking:
            for count, wait_s in enumerate([0.5, 1.0, 2.0, 4.0], start=1):
                await looking.after_the_wait(count)
                assert looking.pace.sleeps == [0.5, 1.0, 2.0, 4.0][:count]
                assert looking.pace.sleeps[-1] == wait_s


async def test_a_dropped_watch_goes_on_from_the_last_event() -> None:
    async with fake_api() as api:
        api.put(slice_of("a", ONE))
        async with _looking(api.url) as looking:
            await api.asked("watch", 1)
            api.bookmark()
            api.put(slice_of("a", ONE, TWO))
            await looking.finds("p1", "p2")
            version = str(api.version)
            api.drop_watches()
            await looking.fails("truncated")
            api.put(slice_of("a", TWO))
            assert looking.names == ["spec-p1", "spec-p2"], "what was known stays"
            assert (looking.row["error_reason"], looking.pace.sleeps) == ("truncated", [0.5])
            looking.pace.advance(0.5)
            await looking.finds("p2")
            assert (await api.asked("watch", 2))["resourceVersion"] == version
            assert (api.count("list"), looking.row["error"]) == (1, None)


async def test_watches_that_break_after_a_while_are_no_row_of_failures() -> None:
    """As behind something that cuts idle connections: the waits between do not grow."""
    async with fake_api() as api, _looking(api.url) as looking:
        for count in (1, 2, 3):
            await api.asked("watch", count)
            await looking.watches()
            looking.pace.advance(30)
            api.drop_watches()
            await looking.after_the_wait(count)
        assert looking.pace.sleeps == [0.5, 0.5, 0.5]


async def test_a_watch_whose_time_is_up_is_followed_by_the_next() -> None:
    async with fake_api() as api:
        api.put(slice_of("a", ONE))
        async with _looking(api.url) as looking:
            await api.asked("watch", 1)
            looking.pace.advance(290)
            api.end_watches()
            assert (await api.asked("watch", 2))["resourceVersion"] == "101"
            assert (api.count("list"), looking.row["failures"], looking.pace.sleeps) == (1, {}, [])


async def test_watches_that_end_at_once_are_not_asked_for_in_a_tight_loop() -> None:
    async with fake_api() as api:
        api.end_at_once = True
        async with _looking(api.url) as looking:
            for count in (1, 2, 3):
                await looking.after_the_wait(count)
            await looking.sleeps(4)
            assert looking.pace.sleeps == [0.5, 1.0, 2.0, 4.0]


async def test_waits_are_jittered_and_bounded() -> None:
    pace = HeldPace(hurried=True)
    pace.luck = 0.5
    async with fake_api() as api:
        api.refusals["list"] = [(500, "etcd is gone")] * 10
        async with _looking(api.url, pace=pace) as looking:
            await api.asked("watch", 1)
            assert pace.sleeps == [0.375, 0.75, 1.5, 3.0, 6.0, 12.0, 22.5, 22.5, 22.5, 22.5]
            assert looking.row["failures"] == {"status_500": 10}


async def test_a_silent_watch_is_given_up() -> None:
    """The connection stands and nothing comes, as when the other side has vanished without a word."""
    async with fake_api() as api:
        api.put(slice_of("a", ONE))
        async with _looking(api.url, silence_s=0.1) as looking:
            await api.asked("watch", 1)
            api.put(slice_of("a", TWO), tell=False)
            await looking.fails("silent")
            assert "said nothing for 0.1 s" in looking.row["error"]
            assert looking.names == ["spec-p1"]
            looking.pace.advance(0.5)
            await api.asked("watch", 2)


async def test_bookmarks_alone_keep_a_watch_alive_and_its_version_new() -> None:
    async with fake_api() as api:
        api.put(slice_of("a", ONE))
        async with _looking(api.url) as looking:
            await api.asked("watch", 1)
            heard = looking.row["age_s"]
            looking.pace.advance(50)
            assert looking.row["age_s"] == heard + 50
            api.bookmark()
            await until(lambda: looking.row["age_s"] == 0, "a bookmark is heard")
            version = str(api.version)
            api.forget_history()
            api.oldest = int(version)
            api.end_watches()
            assert (await api.asked("watch", 2))["resourceVersion"] == version
            assert (looking.names, api.count("list")) == (["spec-p1"], 1)


async def test_a_missed_delete_heals_with_the_next_full_list() -> None:
    async with fake_api() as api:
        api.put(slice_of("a", ONE))
        api.put(slice_of("b", TWO))
        async with _looking(api.url, resync_s=600) as looking:
            await looking.finds("p1", "p2")
            await api.asked("watch", 1)
            api.delete("b", tell=False)
            looking.pace.advance(450)
            api.end_watches()
            assert (await api.asked("watch", 2))["timeoutSeconds"] == "150", "the watch ends when the list is due"
            assert looking.names == ["spec-p1", "spec-p2"]
            looking.pace.advance(150)
            api.end_watches()
            await looking.finds("p1")
            assert api.count("list") == 2


async def test_a_server_that_does_not_end_a_watch_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adaptive_gamma.discovery.kube_api._END_GRACE_S", -0.9)
    async with fake_api() as api, _looking(api.url, watch_s=1) as looking:
        await api.asked("watch", 1)
        looking.pace.advance(2)
        await api.asked("watch", 2)
        assert looking.row["failures"] == {}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"type": "ADDED", "obj\n', "garbled"),
        (b"[1]\n", "garbled"),
        (b'{"type": "ADDED"}\n', "garbled"),
        (b'{"type": "STRANGE", "object": {}}\n', "garbled"),
        (b'{"type": "ADDED", "object": {"metadata": {}}}\n', "garbled"),
        (b'{"type": "ERROR", "object": {"code": 500, "message": "no"}}\n', "status_500"),
        (b'{"type": "ERROR", "object": {"code": "x"}}\n', "garbled"),
        (b"[" * 100_000 + b"\n", "garbled"),
        (b'{"type": "' + b"x" * 3_000_000, "too_large"),
        (b"\xff\xfe\n", "garbled"),
    ],
)
async def test_an_event_that_cannot_be_read_costs_no_replica(
    line: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adaptive_gamma.discovery.kube_api.MAX_EVENT_BYTES", 1_000_000)
    async with fake_api() as api:
        api.put(slice_of("a", ONE))
        async with _looking(api.url) as looking:
            await api.asked("watch", 1)
            api.put(slice_of("a", ONE, TWO), tell=False)
            api.say(line)
            await looking.fails(reason)
            assert looking.names == ["spec-p1"]
            await looking.after_the_wait(1)
            if reason != "status_500":
                await looking.finds("p1", "p2")
                assert api.count("list") == 2, "an event may have been missed"
            await api.asked("watch", 2)


async def test_half_an_event_at_the_end_is_a_broken_watch() -> None:
    async with fake_api() as api, _looking(api.url) as looking:
        await api.asked("watch", 1)
        api.say(b'{"type": "ADDED"')
        api.end_watches()
        await looking.fails("truncated")


async def test_an_event_in_many_pieces_is_one_event() -> None:
    async with fake_api() as api, _looking(api.url) as looking:
        await api.asked("watch", 1)
        item = {**slice_of("a", ONE)}
        item["metadata"]["resourceVersion"] = "7"
        line = json.dumps({"type": "ADDED", "object": item}).encode() + b"\n"
        for byte in range(0, len(line), 7):
            api.say(line[byte : byte + 7])
            await asyncio.sleep(0)
        await looking.finds("p1")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "garbled"),
        (b"[]", "garbled"),
        (b'{"items": []}', "garbled"),
        (b'{"metadata": {}, "items": []}', "garbled"),
        (b'{"metadata": {"resourceVersion": "1"}, "items": {}}', "garbled"),
        (b'{"metadata": {"resourceVersion": "1", "continue": "9"}, "items": []}', "too_large"),
        (b" " * 2_000_000, "too_large"),
    ],
)
async def test_a_list_that_cannot_be_read_leaves_the_last(
    body: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adaptive_gamma.discovery.kube_api.MAX_PAGE_BYTES", 1_000_000)
    async with fake_api() as api:
        api.put(slice_of("a", ONE))
        async with _looking(api.url) as looking:
            await api.asked("watch", 1)
            api.list_body = body
            looking.pace.advance(601)
            api.end_watches()
            await looking.fails(reason)
            assert looking.names == ["spec-p1"]
            api.list_body = None
            api.put(slice_of("a", TWO))
            await looking.after_the_wait(1)
            await looking.finds("p2")


async def test_an_empty_list_of_null_items() -> None:
    async with fake_api() as api:
        api.list_body = b'{"metadata": {"resourceVersion": "1"}, "items": null}'
        async with _looking(api.url) as looking:
            await api.asked("watch", 1)
            assert (looking.names, looking.row["error"]) == ([], None)


async def test_rights_that_are_missing_are_named(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_api() as api:
        api.refusals["list"] = [(403, 'endpointslices is forbidden: User "x" cannot list')] * 2
        async with _looking(api.url) as looking:
            await looking.fails("forbidden")
            assert looking.row["error"] == (
                "forbidden: the service account needs a Role with the verbs get, list, watch on endpointslices of the "
                "API group discovery.k8s.io in namespace default, and a RoleBinding: "
                'endpointslices is forbidden: User "x" cannot list'
            )
            assert (looking.row["age_s"], looking.row["error_age_s"]) == (None, 0.0)
            await looking.after_the_wait(1)
            await looking.after_the_wait(2)
            await api.asked("watch", 1)
            assert looking.row["error"] is None
    warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warned) == 1, "the same failure is said once"
    assert "get, list, watch on endpointslices" in warned[0]


async def test_a_list_without_the_right_to_watch_is_asked_for_now_and_then() -> None:
    """Each wait is twice as long as the one before, so that a Role without ``watch`` is no load on the server."""
    async with fake_api() as api:
        api.put(slice_of("a", ONE))
        api.refusals["watch"] = [(403, "cannot watch")] * 20
        async with _looking(api.url) as looking:
            await looking.finds("p1")
            for count in (1, 2, 3):
                await looking.after_the_wait(count)
            await looking.sleeps(4)
            assert looking.pace.sleeps == [0.5, 1.0, 2.0, 4.0]
            assert looking.row["error_reason"] == "forbidden"


async def test_the_token_is_read_again_and_never_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    file = tmp_path / "token"
    async with fake_api() as api:
        api.put(slice_of("a", ONE))
        api.token = "first-secret"
        async with _looking(api.url, token_file=str(file)) as looking:
            await looking.fails("credentials")
            assert looking.row["error"].startswith(f"credentials: the token file {file} cannot be read: No such file")
            file.write_text("wrong-secret\n")
            await looking.after_the_wait(1)
            await looking.fails("unauthorized")
            assert looking.row["error"].startswith(f"unauthorized: the API server does not take the token in {file}: U")
            file.write_text("first-secret\n")
            await looking.after_the_wait(2)
            await looking.finds("p1")
            await api.asked("watch", 1)
            api.token = "second-secret"
            file.write_text("second-secret")
            looking.pace.advance(60)
            api.end_watches()
            await api.asked("watch", 2)
            assert [headers["authorization"] for _, _, headers in api.requests] == [
                "Bearer wrong-secret", "Bearer first-secret", "Bearer first-secret", "Bearer second-secret",
            ]  # fmt: skip
            api.refusals["watch"] = [(500, "you sent second-secret")]
            looking.pace.advance(60)
            api.end_watches()
            await looking.fails("status_500")
            assert "second-secret" not in json.dumps(looking.discovery.status())
            for content in ("", "two words", "zwölf"):
                file.write_text(content)
                looking.pace.advance(60)
                await looking.fails("credentials", looking.row["failures"]["credentials"] + 1)
    assert "secret" not in caplog.text


async def test_a_server_that_wants_a_token_and_gets_none() -> None:
    async with fake_api() as api:
        api.token = "x"
        async with _looking(api.url) as looking:
            await looking.fails("unauthorized")
            assert "wants a token: give token_file" in looking.row["error"]


async def test_nobody_answers() -> None:
    async with fake_api() as api:
        url = api.url
    async with _looking(url) as looking:
        await looking.fails("connect")
        assert (looking.names, looking.row["age_s"]) == ([], None)


async def test_a_server_that_never_answers() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with _looking(url, timeout_s=0.05) as looking:
            await looking.fails("timeout")
            assert looking.row["error"] == "timeout: no whole list within 0.05 s"


async def test_the_certificate_is_checked_by_the_file_given(tmp_path: Path) -> None:
    certificate, key = _self_signed(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    ca = tmp_path / "ca.crt"
    async with fake_api(server) as api:
        api.put(slice_of("a", ONE))
        async with _looking(api.url, ca_file=str(ca)) as looking:
            await looking.fails("credentials")
            ca.write_text("no certificate")
            await looking.after_the_wait(1)
            await looking.fails("credentials", 2)
            ca.write_bytes(certificate.read_bytes())
            await looking.after_the_wait(2)
            await looking.finds("p1")
            await api.asked("watch", 1)
            (tmp_path / "other").mkdir()
            ca.write_bytes(_self_signed(tmp_path / "other")[0].read_bytes())
            api.end_watches()
            await looking.after_the_wait(3)
            await looking.fails("connect")
            assert looking.names == ["spec-p1"]
        async with _looking(api.url) as looking:
            await looking.fails("connect")
            assert "certificate" in looking.row["error"].lower()


def test_inside_a_pod_everything_has_its_place(tmp_path: Path) -> None:
    kubernetes = _settings("https://a:1").kubernetes.model_copy(update={"api_url": None})
    with pytest.raises(ConfigurationError, match=r"KUBERNETES_SERVICE_HOST: is not set, so this is no pod"):
        find_access(kubernetes, {}, tmp_path)
    (tmp_path / "namespace").write_text("models\n")
    pod = find_access(kubernetes, {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}, tmp_path)
    assert (pod.url, pod.namespace) == ("https://10.0.0.1:6443", "models")
    assert (pod.token_file, pod.ca_file) == (tmp_path / "token", tmp_path / "ca.crt")
    six = find_access(kubernetes, {"KUBERNETES_SERVICE_HOST": "fd00::1"}, tmp_path / "nowhere")
    assert (six.url, six.namespace) == ("https://[fd00::1]:443", "default")
    outside = find_access(_settings("https://a:1").kubernetes, {}, tmp_path)
    assert (outside.url, outside.token_file, outside.ca_file) == ("https://a:1", None, None)


def _self_signed(folder: Path) -> tuple[Path, Path]:
    """Certificate and key of a server at 127.0.0.1."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl makes the certificate of this test, and is not here")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key

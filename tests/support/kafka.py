"""A Kafka broker for tests: the one that `BIDE_TEST_KAFKA` names, else Apache Kafka where it was downloaded before,
else librdkafka's mock cluster. It says which one serves."""

from __future__ import annotations

import atexit
import ctypes
import glob
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from tests.support.ports import free_port

VERSION = "4.1.0"
CACHE = Path(os.environ.get("BIDE_KAFKA_CACHE", Path.home() / ".cache" / "bide" / f"kafka-{VERSION}"))
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>bide</groupId><artifactId>broker</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""


class Broker(Protocol):
    """Somewhere to connect to."""

    name: str
    servers: str

    def create(self, topic: str, partitions: int = 1) -> None: ...

    def down(self) -> None:
        """Take it away; nothing that was acknowledged is lost."""

    def up(self) -> None: ...


class Mock:
    """librdkafka's own mock cluster, in this process, on a port that other processes can reach."""

    def __init__(self) -> None:
        import confluent_kafka

        folder = Path(confluent_kafka.__file__).parent.parent
        [path] = glob.glob(str(folder / "confluent_kafka.libs" / "librdkafka*.so*"))
        self._library = library = ctypes.CDLL(path)
        for function in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
            getattr(library, function).restype = ctypes.c_void_p
        library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        problem = ctypes.create_string_buffer(512)
        conf = ctypes.c_void_p(library.rd_kafka_conf_new())
        self._handle = ctypes.c_void_p(library.rd_kafka_new(0, conf, problem, 512))
        assert self._handle.value, problem.value
        self._cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(self._handle, 1))
        library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 0)
        self.name = "librdkafka's mock cluster"
        self.servers = library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def create(self, topic: str, partitions: int = 1) -> None:
        error = self._library.rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions, 1)
        assert error == 0, f"topic {topic} was not made: error {error}"

    def down(self) -> None:
        self._library.rd_kafka_mock_broker_set_down(self._cluster, 1)

    def up(self) -> None:
        self._library.rd_kafka_mock_broker_set_up(self._cluster, 1)

    def close(self) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._handle)


class Given:
    """A broker that was there before; it cannot be taken down."""

    def __init__(self, servers: str, name: str = "the broker of BIDE_TEST_KAFKA") -> None:
        self.servers = servers
        self.name = name

    def create(self, topic: str, partitions: int = 1) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # it says so in its docs

        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 3})
        for made in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
            made.result(30)

    def down(self) -> None:
        raise NotImplementedError

    def up(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        return None


class Apache(Given):
    """Apache Kafka as one process, broker and controller, on the loopback interface."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="bide-kafka-"))
        port, controller = free_port(), free_port()
        super().__init__(f"127.0.0.1:{port}", f"Apache Kafka {VERSION}")
        self._settings = self._folder / "server.properties"
        self._settings.write_text(
            f"""process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={self._folder / "logs"}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
offsets.topic.num.partitions=4
"""
        )
        cluster = f"b{secrets.token_urlsafe(16)[1:]}"  # one that begins with a dash would be taken for an option
        self._java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._settings)).check_returncode()
        self._process: subprocess.Popen[bytes] | None = None
        self.up()

    def _command(self, *arguments: str) -> list[str]:
        return ["java", "-Xmx512m", "-cp", f"{CACHE}/*", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", *arguments]

    def _java(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(self._command(*arguments), capture_output=True, timeout=120, check=False)

    def up(self) -> None:
        with (self._folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self._settings)), stdout=log, stderr=log, start_new_session=True
            )
        host, port = self.servers.split(":")
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if self._process.poll() is not None:
                raise RuntimeError((self._folder / "broker.log").read_text()[-2000:])
            try:
                socket.create_connection((host, int(port)), 1).close()
                return
            except OSError:
                time.sleep(0.1)
        raise TimeoutError("Apache Kafka did not come up within a minute")

    def down(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def close(self) -> None:
        self.down()
        shutil.rmtree(self._folder, ignore_errors=True)


def has_apache(*, download: bool = False) -> bool:
    """Whether Apache Kafka can be started; with *download* it is fetched first where Java and Maven are there."""
    if shutil.which("java") is None:
        return False
    if (CACHE / ".complete").is_file():
        return True
    if not download or shutil.which("mvn") is None:
        return False
    print(f"fetching Apache Kafka {VERSION} from Maven, once", file=sys.stderr)
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE / "pom.xml").write_text(POM)
    command = ["mvn", "-q", "-B", "-f", str(CACHE / "pom.xml"), "dependency:copy-dependencies"]
    done = subprocess.run([*command, f"-DoutputDirectory={CACHE}"], capture_output=True, timeout=600, check=False)
    if done.returncode == 0:
        (CACHE / ".complete").touch()
    else:
        print(f"Apache Kafka could not be fetched: {done.stdout[-300:]!r}", file=sys.stderr)
    return done.returncode == 0


@contextmanager
def broker(*, download: bool = False, tells: bool = True) -> Iterator[Broker]:
    """A broker for the time of the block; prints which one serves, where it *tells*."""
    made: Any
    if servers := os.environ.get("BIDE_TEST_KAFKA"):
        made = Given(servers)
    elif has_apache(download=download):
        made = Apache()
    else:
        made = Mock()
    if tells:
        print(f"kafka: {made.name} at {made.servers}", file=sys.stderr)
    atexit.register(made.close)
    try:
        yield made
    finally:
        atexit.unregister(made.close)
        made.close()

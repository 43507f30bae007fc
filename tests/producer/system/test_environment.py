"""What is read of a machine: from made-up files, so that the result is known."""

import pytest

from producer.system import environment
from producer.system.environment import collect_environment, os_name


@pytest.fixture
def files(monkeypatch, tmp_path):
    """A folder that stands for the root of the file system."""

    def rooted(path):
        return tmp_path / path.lstrip("/")

    monkeypatch.setattr(environment, "Path", rooted)

    def write(path, text):
        rooted(path).parent.mkdir(parents=True, exist_ok=True)
        rooted(path).write_text(text)

    return write


def test_the_system_calls_itself(files):
    files("/etc/os-release", 'ID=debian\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n')
    assert os_name() == "Debian GNU/Linux 12 (bookworm)"


@pytest.mark.usefixtures("files")
def test_without_a_name_the_platform_is_said(monkeypatch):
    monkeypatch.setattr("platform.platform", lambda: "Some-1.0")
    assert os_name() == "Some-1.0"


def test_a_file_without_the_line_gives_the_platform_too(files, monkeypatch):
    files("/etc/os-release", "ID=other\n")
    monkeypatch.setattr("platform.platform", lambda: "Some-1.0")
    assert os_name() == "Some-1.0"


def test_the_model_of_the_cpu(files):
    files("/proc/cpuinfo", "processor\t: 0\nmodel name\t: A CPU @ 2 GHz\n")
    assert collect_environment(1)["cpu"] == "A CPU @ 2 GHz"


@pytest.mark.parametrize("text", [None, "processor\t: 0\n"])
def test_a_cpu_without_a_name_is_null(files, monkeypatch, text):
    if text is not None:
        files("/proc/cpuinfo", text)
    monkeypatch.setattr("platform.processor", lambda: "")
    assert collect_environment(1)["cpu"] is None


def test_the_memory_that_is_left(files):
    assert environment.available_bytes() is None
    files("/proc/meminfo", "MemTotal: 9 kB\nMemAvailable:     4 kB\n")
    assert environment.available_bytes() == 4096
    files("/proc/meminfo", "MemTotal: 9 kB\n")
    assert environment.available_bytes() is None


def test_a_status_without_a_peak(files):
    files("/proc/self/status", "Name: x\nVmHWM:     7 kB\n")
    assert environment.peak_rss_bytes() == 7168
    files("/proc/self/status", "Name: x\n")
    assert environment.peak_rss_bytes() is None

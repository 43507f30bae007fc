"""Pages for the tests of the HTML report, with records that are hostile, many, or both."""

import copy
import json
import random

from kvint2eval.cli import main
from tests.helpers import published
from tests.tools.regen.published import observed, sealed

HOSTILE = (
    "<script>document.title='forged'</script>\"'><img src=http://x.invalid onerror=a()>&amp;]]>\u2028\u202e"
)


def hostile_record():
    """A supported record that holds markup wherever a text may stand."""
    record = copy.deepcopy(observed())
    record["artifact"]["version"] = record["hardware"]["gpu"] = record["runtime"]["driver"] = HOSTILE
    return sealed(record)


def many(count):
    """Lines of as many records: most supported, each with figures of its own."""
    numbers = random.Random(1)
    plain = json.loads(published())
    for at in range(count):
        record = copy.deepcopy(plain)
        metrics = record["metrics"]
        for row in metrics["candidates"]:
            for name in ("output_nmse_mean", "calibration_milliseconds", "decode_microseconds_mean"):
                row[name] *= numbers.uniform(0.9, 2)
        for side, number in (("baseline", 0), ("candidate", 7)):
            row = metrics["candidates"][number]
            metrics[f"{side}_output_nmse"] = row["output_nmse_mean"]
            metrics[f"{side}_decode_microseconds"] = row["decode_microseconds_mean"]
        metrics["transform_milliseconds"] = metrics["candidates"][7]["calibration_milliseconds"]
        if at % 10 == 3:
            metrics["cache_bytes"] += 1
        if at % 17 == 5:
            record["evidence"] = "modeled"
        yield json.dumps(sealed(record)).encode()


def report(target, *arguments):
    """Exit code of the command, the page in `target`."""
    return main(["report", "-o", str(target), *map(str, arguments)])

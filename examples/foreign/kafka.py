"""A Kafka consumer log as a trace: `python kafka.py FOLDER`, then `unisono audit FOLDER/trace`.

The log has a JSON object a line, with the fields that `kcat -J` prints and two that the consumer
adds: who it is, and when it got the record. Two consumers of two groups read the same topics.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

LOG = """
{"consumer":"billing","received_ms":1005,"topic":"orders","partition":0,"offset":41,"ts":1000,"key":"a"}
{"consumer":"billing","received_ms":1009,"topic":"orders","partition":0,"offset":42,"ts":1002,"key":"b"}
{"consumer":"billing","received_ms":1011,"topic":"payments","partition":0,"offset":7,"ts":1004,"key":"a"}
{"consumer":"billing","received_ms":1012,"topic":"payments","partition":0,"offset":8,"ts":1006,"key":"b"}
{"consumer":"billing","received_ms":1040,"topic":"payments","partition":0,"offset":8,"ts":1006,"key":"b"}
{"consumer":"stock","received_ms":1006,"topic":"orders","partition":0,"offset":41,"ts":1000,"key":"a"}
{"consumer":"stock","received_ms":1008,"topic":"payments","partition":0,"offset":7,"ts":1004,"key":"a"}
{"consumer":"stock","received_ms":1013,"topic":"orders","partition":0,"offset":42,"ts":1002,"key":"b"}
{"consumer":"stock","received_ms":1014,"topic":"payments","partition":0,"offset":8,"ts":1006,"key":"b"}
"""


def convert(log: Path, trace: Path) -> None:
    trace.mkdir(parents=True, exist_ok=True)
    rows = pd.read_json(log, lines=True, convert_dates=False)
    rows["publisher"] = rows["topic"] + "/" + rows["partition"].astype(str)
    rows["event_id"] = rows["publisher"] + "/" + rows["offset"].astype(str)
    rows["publisher_seq"] = rows["offset"]
    rows["published_us"] = rows["ts"] * 1000
    publications = rows.drop_duplicates("event_id")
    columns = ["event_id", "topic", "publisher", "publisher_seq", "published_us"]
    publications[columns].to_csv(trace / "publications.csv", index=False)
    rows["subscriber"] = rows["consumer"]
    rows["position"] = rows.groupby("consumer").cumcount()
    rows["delivered_us"] = rows["received_ms"] * 1000
    columns = ["subscriber", "position", "event_id", "delivered_us"]
    rows[columns].to_csv(trace / "deliveries.csv", index=False)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "consumers.ndjson").write_text(LOG.lstrip())
    convert(folder / "consumers.ndjson", folder / "trace")
    print(f"now: unisono audit {folder / 'trace'}")

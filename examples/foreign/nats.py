"""A JetStream consumer log as a trace: `python nats.py FOLDER`, then `unisono audit FOLDER/trace`.

Each line is what a consumer knows of a message: when it came (in nanoseconds), its subject and its
reply subject, in which the server says which message of the stream it is:

$JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time in ns>.<pending>
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

LOG = """
5000000 prices.eur $JS.ACK.MARKET.desk.1.11.1.1000000.4
5100000 prices.usd $JS.ACK.MARKET.desk.1.12.2.1500000.3
5200000 trades $JS.ACK.MARKET.desk.1.13.3.2000000.2
5300000 prices.eur $JS.ACK.MARKET.desk.1.14.4.2500000.1
5050000 prices.eur $JS.ACK.MARKET.risk.1.11.1.1000000.4
5150000 trades $JS.ACK.MARKET.risk.1.13.3.2000000.2
5250000 prices.eur $JS.ACK.MARKET.risk.1.14.4.2500000.1
35000000 prices.usd $JS.ACK.MARKET.risk.2.12.5.1500000.0
"""


def convert(log: Path, trace: Path) -> None:
    trace.mkdir(parents=True, exist_ok=True)
    rows = pd.read_csv(log, sep=" ", names=["received_ns", "topic", "reply"])
    parts = rows["reply"].str.split(".", expand=True)
    rows["publisher"], rows["subscriber"] = parts[2], parts[3]
    rows["publisher_seq"] = parts[5].astype("int64")
    rows["event_id"] = parts[2] + "/" + parts[5]
    rows["published_us"] = parts[7].astype("int64") // 1000
    columns = ["event_id", "topic", "publisher", "publisher_seq", "published_us"]
    rows.drop_duplicates("event_id")[columns].to_csv(trace / "publications.csv", index=False)
    rows["position"] = parts[6].astype("int64")
    rows["delivered_us"] = rows["received_ns"] // 1000
    columns = ["subscriber", "position", "event_id", "delivered_us"]
    rows[columns].to_csv(trace / "deliveries.csv", index=False)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "consumers.log").write_text(LOG.lstrip())
    convert(folder / "consumers.log", folder / "trace")
    print(f"now: unisono audit {folder / 'trace'}")

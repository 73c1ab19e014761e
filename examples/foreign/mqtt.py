"""MQTT logs as a trace: `python mqtt.py FOLDER`, then `unisono audit FOLDER/trace`.

Each subscriber has the output of `mosquitto_sub -t 'hall/#' -F '%U %t %p'`: seconds, topic and
payload. MQTT names neither senders nor messages, so payloads do: here "sensor number value". What
was sent is in a log of the same form, written by the sensors (or by a listener near the broker).
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

LOGS = {
    "sent": """
1700000000.000100000 hall/door d1 1 open
1700000000.250000000 hall/light l1 1 on
1700000000.500000000 hall/door d1 2 closed
1700000000.750000000 hall/light l1 2 off
""",
    "alarm": """
1700000000.004100000 hall/door d1 1 open
1700000000.255000000 hall/light l1 1 on
1700000000.503000000 hall/door d1 2 closed
1700000000.756000000 hall/light l1 2 off
""",
    "screen": """
1700000000.009100000 hall/door d1 1 open
1700000000.260000000 hall/light l1 1 on
1700000000.759000000 hall/light l1 2 off
""",
}


def read(log: Path) -> pd.DataFrame:
    names = ["time", "topic", "publisher", "publisher_seq", "value"]
    rows = pd.read_csv(log, sep=" ", names=names, dtype={"time": str})
    seconds = rows["time"].str.split(".", expand=True)  # a float would not hold microseconds
    rows["at_us"] = seconds[0].astype("int64") * 1_000_000 + seconds[1].str[:6].astype("int64")
    rows["event_id"] = rows["publisher"] + "-" + rows["publisher_seq"].astype(str)
    return rows


def convert(sent: Path, heard: dict[str, Path], trace: Path) -> None:
    trace.mkdir(parents=True, exist_ok=True)
    rows = read(sent).rename(columns={"at_us": "published_us"})
    columns = ["event_id", "topic", "publisher", "publisher_seq", "published_us"]
    rows[columns].to_csv(trace / "publications.csv", index=False)
    logs = [read(log).assign(subscriber=who) for who, log in heard.items()]
    deliveries = pd.concat(logs).rename_axis("position").reset_index()
    columns = ["subscriber", "position", "event_id", "at_us"]
    deliveries[columns].rename(columns={"at_us": "delivered_us"}).to_csv(
        trace / "deliveries.csv", index=False
    )
    topics = rows[["topic"]].drop_duplicates().assign(from_us=0, until_us=None)
    everyone = pd.DataFrame({"subscriber": list(heard)})
    everyone.merge(topics, how="cross").to_csv(trace / "subscriptions.csv", index=False)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in LOGS.items():
        (folder / f"{name}.log").write_text(text.lstrip())
    listeners = {name: folder / f"{name}.log" for name in LOGS if name != "sent"}
    convert(folder / "sent.log", listeners, folder / "trace")
    print(f"now: unisono audit {folder / 'trace'}")

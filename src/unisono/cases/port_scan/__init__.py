"""Collaborative security (thesis, 1.2.1): port scans that no single institution would notice.

traffic.py   TCP packets as sites see them: generated, with the scanners known
pcap.py      the same from captured files
detect.py    incomplete connections of one address, as a pure machine
query.py     the same as a streaming query of Spark
run.py       the sites, the engine, the blacklist, and how well it is made
"""

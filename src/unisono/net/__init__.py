"""The asyncio driver: the same node objects over real buses, with real time."""

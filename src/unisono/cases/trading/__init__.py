"""Algorithmic trading (thesis, 1.2.2): two firms run the same orders over the same prices.

market.py     the prices
strategy.py   an order, as a pure machine
query.py      the same as a streaming query of Spark
run.py        the market, the firms, and how often they decide alike
"""

"""Plots and the HTML report, made from pipeline tables only."""

"""Random linear coding of events.

galois.py      GF(2^8): products of matrices, in vector instructions where the CPU has them
generation.py  one group of packets: encode, recode, progressive decoding
"""

PACKETS_MAX = 255  # of a generation: coefficients stay small beside payloads

"""Sites over a network, on Flower. Nothing else in koncord imports `flwr`.

Who runs what::

    koncord run   --SuperLink, nginx-->   koncord join
    link.py, exchange.py, carrier.py      fleet.py

`koncord run` holds the server's side of the method and the journal, and claims a run of Flower that carries its
messages. At a site, koncord itself speaks Flower's Fleet API. On neither side a program that came with a run is ever
fetched, and none is started for it.
"""

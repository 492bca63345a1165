"""Sites over a network, on Flower. Nothing else in koncord imports `flwr`.

Who runs what::

    koncord run  --socket-->  relay (ServerApp)  --SuperLink, nginx-->  koncord join
    link.py                   relay.py                                  fleet.py

`koncord run` holds the server's side of the method and the journal. The relay only carries; it lives and dies with the
connection to `koncord run`. At a site, koncord itself speaks Flower's Fleet API: no program that came with a run is
ever fetched.
"""

"""Sites over a network, on Flower. Nothing else in koncord imports `flwr`.

Who runs what::

    koncord run  --socket-->  relay (ServerApp)  --SuperLink, nginx, SuperNode-->  answering (ClientApp)
    link.py                   relay.py                                             answering.py

`koncord run` holds the server's side of the method and the journal. The relay only carries; it lives and dies with the
connection to `koncord run`. At a site, koncord's own client answers, whatever program came with the run.
"""

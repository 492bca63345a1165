"""The nginx in front of Flower: TLS ends here, and only what a site needs goes through."""

import os
import shutil
import socket
from pathlib import Path
from pwd import getpwuid

from koncord.errors import KoncordError
from koncord.network.certificates import ANNOUNCEMENT
from koncord.protocol.schema import LARGEST_ANSWER

# What a Flower SuperNode with a registered key calls. Anyone who reaches /v1/control or /v1/runtime could register keys
# and start programs.
FLEET = (
    "activate-node",
    "deactivate-node",
    "send-node-heartbeat",
    "pull-messages",
    "push-messages",
    "get-run",
    "get-fab",
    "pull-object",
    "confirm-message-received",
)
# The one call that carries what a site sends; the others have some hundred bytes.
CARRIES = "push-object"
# Bytes. Flower reads a body before it looks at the key it came with.
LARGEST_CALL, LARGEST_OBJECT, IN_MEMORY = 1 << 18, LARGEST_ANSWER + (1 << 16), 1 << 20
ANNOUNCED_AT = "/koncord/authority"
CONFIG = """\
# Written by koncord serve at every start; changes are lost.
daemon off;
{user}worker_processes 1;
pid {folder}/nginx.pid;
error_log {log} warn;

events {{ worker_connections 1024; }}

http {{
    access_log off;
    server_tokens off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;

    # By address, as many sites may share one. A body of a million bytes or more, or of a length that is not said, waits
    # its turn: an answer has some thousand, unless rows are sent.
    map $http_content_length $sends_much {{
        "~^[0-9]{{1,6}}$" "";
        default $binary_remote_addr;
    }}
    limit_req_zone $binary_remote_addr zone=calls:4m rate=100r/s;
    limit_req_zone $sends_much zone=large:4m rate=2r/s;
    limit_conn_zone $binary_remote_addr zone=open:4m;
    limit_conn_zone $sends_much zone=large_open:4m;
    limit_req_status 429;
    limit_conn_status 429;

    server {{
{listen}
        ssl_certificate {certificate};
        ssl_certificate_key {key};
        ssl_protocols TLSv1.2 TLSv1.3;

        client_max_body_size {largest_call};
        client_body_buffer_size {in_memory};
        client_body_timeout 30s;
        keepalive_timeout 75s;

        limit_req zone=calls burst=400 nodelay;
        limit_conn open 256;

        proxy_http_version 1.1;
        proxy_set_header Host $host;
        proxy_set_header Connection "";
        proxy_request_buffering on;
        proxy_read_timeout 120s;
        proxy_ssl_trusted_certificate {authority};
        proxy_ssl_verify on;
        proxy_ssl_name localhost;

        location ~ ^/v1/fleet/({paths})$ {{
            limit_except POST {{ deny all; }}
            proxy_pass https://127.0.0.1:{internal_port};
        }}

        location = /v1/fleet/{carries} {{
            client_max_body_size {largest_object};
            limit_req zone=calls burst=400 nodelay;
            limit_req zone=large burst=20;
            limit_conn open 256;
            limit_conn large_open 4;
            limit_except POST {{ deny all; }}
            proxy_pass https://127.0.0.1:{internal_port};
        }}

        # By which sites learn of a new certificate authority; signed with the key of the one they trust.
        location = {announcement} {{
            limit_except GET {{ deny all; }}
            default_type application/json;
            alias {certificates}/{announcement_file};
        }}

        location / {{ return 403; }}
    }}
}}
"""


def nginx() -> str:
    """Path of the program; `KoncordError` where it is not installed."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise KoncordError(
            "nginx is not installed; koncord serve needs it to keep sites away from Flower's control interface "
            "(Debian: apt install nginx-light)."
        )
    return found


def write_config(
    folder: Path, *, listen: str, port: int, internal_port: int, certificates: Path, internal: Path, log: Path
) -> Path:
    """Write nginx.conf into `folder` and return its path; `listen` is an address, or "*" for all.

    `certificates` is the folder of the certificate that sites see, `internal` that of Flower's own.
    """
    folder.mkdir(exist_ok=True)
    addresses = all_addresses(port) if listen == "*" else [f"{bracketed(listen)}:{port}"]
    text = CONFIG.format(
        # Started by root, nginx would work as another user, who may not enter this folder.
        user=f"user {getpwuid(0).pw_name};\n" if os.geteuid() == 0 else "",
        folder=folder,
        log=log,
        listen="\n".join(f"        listen {address} ssl;" for address in addresses),
        certificate=certificates / "server.crt",
        key=certificates / "server.key",
        authority=internal / "ca.crt",
        certificates=certificates,
        announcement=ANNOUNCED_AT,
        announcement_file=ANNOUNCEMENT,
        largest_call=LARGEST_CALL,
        largest_object=LARGEST_OBJECT,
        carries=CARRIES,
        in_memory=IN_MEMORY,
        paths="|".join(FLEET),
        internal_port=internal_port,
    )
    path = folder / "nginx.conf"
    path.write_text(text, encoding="utf-8")
    return path


def all_addresses(port: int) -> list[str]:
    """Those of both versions of the internet protocol, where the machine has both."""
    try:
        socket.socket(socket.AF_INET6).close()
    except OSError:
        return [f"0.0.0.0:{port}"]
    return [f"0.0.0.0:{port}", f"[::]:{port} ipv6only=on"]


def bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address

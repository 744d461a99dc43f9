"""A user's program as torchrun would start it: node rank 0 listens on MASTER_PORT, the others find it by MASTER_ADDR."""
import os
import socket
import time

rank, nodes, world = (int(os.environ[name]) for name in ("NODE_RANK", "NNODES", "WORLD_SIZE"))
address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
for name in ("MASTER_ADDR", "MASTER_PORT", "NNODES", "NODE_RANK", "NPROC_PER_NODE"):
    assert os.environ["PET_" + name] == os.environ[name], name
deadline = time.monotonic() + 60
if rank == 0:
    with socket.create_server(("", port)) as server:
        server.settimeout(60)
        connection, peer = server.accept()
        other = int(connection.makefile().readline())
        connection.sendall(b"0\n")
        print(f"accepted a connection from {peer[0]}, which is not {os.environ['POD_IP']}, my own address")
else:
    while True:  # the name resolves about a second after the pod of node rank 0 has started
        try:
            connection = socket.create_connection((address, port), timeout=5)
            break
        except OSError as error:
            print(f"{address}:{port}: {error}; trying again")
            assert time.monotonic() < deadline
            time.sleep(0.2)
    connection.sendall(f"{rank}\n".encode())
    other = int(connection.makefile().readline())
    print(f"connected to {connection.getpeername()[0]}:{port} by the name {address}")
print(f"node rank {rank} of {nodes} met node rank {other}, world size {world}")

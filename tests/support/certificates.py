"""A certificate authority for tests, and a server's certificate for localhost and some addresses."""
import os
import subprocess


def make_certificates(directory, addresses=("127.0.0.1",), days=2, env=None):
    """Makes ca.pem, server.pem and server.key in a new directory, and returns it. `env` may give the program openssl
    another clock, with which their days begin."""
    def openssl(where, *arguments):
        subprocess.run(["openssl", *arguments], cwd=where, check=True, capture_output=True, env={**os.environ, **(env or {})})

    directory.mkdir()
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    # Python 3.13 verifies as RFC 5280 says: an authority has keyUsage, and a certificate names its authority's key.
    openssl(directory, "req", "-x509", "-days", str(days), "-subj", "/CN=test authority", "-addext",
            "keyUsage=critical,keyCertSign,cRLSign", *key, "-keyout", "ca.key", "-out", "ca.pem")
    names = ",".join(["DNS:localhost", *(f"IP:{address}" for address in addresses)])
    (directory / "names").write_text(f"subjectAltName={names}\nauthorityKeyIdentifier=keyid\n")
    openssl(directory, "req", "-subj", "/CN=server", *key, "-keyout", "server.key", "-out", "server.csr")
    openssl(directory, "x509", "-req", "-days", str(days), "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile",
            "names", "-in", "server.csr", "-out", "server.pem")
    return directory

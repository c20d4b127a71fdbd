"""A certificate authority for tests, and a server's certificate for localhost and 127.0.0.1."""
import subprocess


def openssl(directory, *arguments):
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)


def make_certificates(directory):
    """Makes ca.pem, server.pem and server.key in a new directory, and returns it."""
    directory.mkdir()
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    # Python 3.13 verifies as RFC 5280 says: an authority has keyUsage, and a certificate names its authority's key.
    openssl(directory, "req", "-x509", "-days", "2", "-subj", "/CN=test authority", "-addext",
            "keyUsage=critical,keyCertSign,cRLSign", *key, "-keyout", "ca.key", "-out", "ca.pem")
    (directory / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\nauthorityKeyIdentifier=keyid\n")
    openssl(directory, "req", "-subj", "/CN=server", *key, "-keyout", "server.key", "-out", "server.csr")
    openssl(directory, "x509", "-req", "-days", "2", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile",
            "names", "-in", "server.csr", "-out", "server.pem")
    return directory

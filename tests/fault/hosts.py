"""Hosts on one machine: network namespaces with addresses of their own around a router, and what goes wrong in networks.

    server --+-- router --+-- worker1        each host has a link of its own to the router
    client --+            +-- worker2

A namespace has no name and lives as long as this process and those that it started there, so that nothing is left behind,
however a test ends. Needs root, or `unshare -rn`, and the programs ip, tc and iptables."""
import contextlib
import ctypes
import errno
import fcntl
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import threading

CLONE_NEWNET = 0x40000000
NAMESPACE = "/proc/thread-self/ns/net"
DELAY_HOP = pathlib.Path(__file__).with_name("delay_hop.py")
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
NETLINK_NETFILTER, FORGET_ALL = 12, 0x0102  # IPCTNL_MSG_CT_DELETE of the subsystem ctnetlink
REQUEST, ACKNOWLEDGE = 0x01, 0x04
libc = ctypes.CDLL(None, use_errno=True)


def call(function, *arguments):
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function.__name__}: {os.strerror(number)}")


class Namespace:
    def __init__(self):
        made = []

        def make():
            try:
                call(libc.unshare, CLONE_NEWNET)
                made.append(os.open(NAMESPACE, os.O_RDONLY | os.O_CLOEXEC))
            except OSError as error:
                made.append(error)

        thread = threading.Thread(target=make)  # unshare() moves the thread that calls it
        thread.start()
        thread.join()
        if isinstance(made[0], OSError):
            raise made[0]
        self.descriptor = made[0]
        self.run("ip", "link", "set", "lo", "up")

    @contextlib.contextmanager
    def entered(self):
        """Within it, the calling thread, its sockets, and the threads and processes that it starts are at this host."""
        before = os.open(NAMESPACE, os.O_RDONLY | os.O_CLOEXEC)
        call(libc.setns, self.descriptor, CLONE_NEWNET)
        try:
            yield self
        finally:
            call(libc.setns, before, CLONE_NEWNET)
            os.close(before)

    def run(self, *command):
        with self.entered():
            ran = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if ran.returncode != 0:
            raise OSError(errno.EPERM, f"{' '.join(map(str, command))}: {ran.stderr.strip()}")

    def set(self, key, value):
        with self.entered():
            pathlib.Path("/proc/sys/net", key).write_text(f"{value}\n")

    def close(self):
        os.close(self.descriptor)


class Host(Namespace):
    def __init__(self, name, number):
        super().__init__()
        self.name, self.number, self.address, self.link = name, number, f"10.79.{number}.2", f"to{number}"


class Network:
    """The hosts `names`, in this order, and the router. All its methods return at once; a fault lasts until heal()."""

    def __init__(self, *names):
        self.router, self.hosts, self.faults, self.hops = Namespace(), {}, {}, {}
        try:
            self.router.set("ipv4/ip_forward", 1)
            for number, name in enumerate(names, 1):
                self.add(name, number)
            # The router is a firewall: it lets only packets of connections pass whose begin it has seen.
            self.router.run(*"iptables -A FORWARD -m conntrack --ctstate INVALID -j DROP".split())
            self.router.set("netfilter/nf_conntrack_tcp_loose", 0)
        except BaseException:
            self.close()
            raise

    def add(self, name, number):
        host = self.hosts[name] = Host(name, number)
        inside = f"/proc/{os.getpid()}/fd/{host.descriptor}"
        # Packets of the usual size, so that each of them can be lost for itself.
        self.router.run("ip", "link", "add", host.link, "gso_max_segs", 1, "type", "veth", "peer", "name", "eth0",
                        "gso_max_segs", 1, "netns", inside)
        self.router.run("ip", "address", "add", f"10.79.{number}.1/30", "dev", host.link)
        self.router.run("ip", "link", "set", host.link, "up")
        host.run("ip", "address", "add", f"{host.address}/30", "dev", "eth0")
        host.run("ip", "link", "set", "eth0", "up")
        host.run("ip", "route", "add", "default", "via", f"10.79.{number}.1")

    def __getitem__(self, name):
        return self.hosts[name]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for hop in self.hops.values():
            hop.kill()
            hop.wait()
        for namespace in (*self.hosts.values(), self.router):
            namespace.close()
        self.hosts, self.hops = {}, {}

    # -- what is lost on the way

    def partition(self, one, other):
        """Nothing passes between two hosts. They are not told."""
        self.drop(one, other)
        self.drop(other, one)

    def drop(self, sender, receiver, one_of=1):
        """Loses the packets of one direction, or regularly one of so many. At random a packet would now and then be lost
        so often in a row that TCP repeats it after the end of any lease."""
        some = ["-m", "statistic", "--mode", "nth", "--every", one_of, "--packet", 0] if one_of > 1 else []
        self.add_fault(sender, receiver, [*some, "-j", "DROP"])

    def reset(self, one, other):
        """Whoever of the two sends something on a connection between them gets a TCP reset."""
        for sender, receiver in ((one, other), (other, one)):
            self.add_fault(sender, receiver, ["-p", "tcp", "-j", "REJECT", "--reject-with", "tcp-reset"])

    def add_fault(self, sender, receiver, what):
        rule = ["-s", self[sender].address, "-d", self[receiver].address, *what]
        self.router.run("iptables", "-I", "FORWARD", *rule)
        self.faults.setdefault(frozenset((sender, receiver)), []).append(rule)

    def heal(self, *pair):
        """Ends the faults between two hosts; without arguments all of them."""
        for each in [frozenset(pair)] if pair else list(self.faults):
            for rule in self.faults.pop(each, []):
                self.router.run("iptables", "-D", "FORWARD", *rule)

    def restart_router(self):
        """The router is gone for a moment, and afterwards knows no connection: it loses the packets of all that existed,
        and tells nobody."""
        for host in self.hosts.values():
            self.router.run("ip", "link", "set", host.link, "down")
        with self.router.entered(), socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as netlink:
            netlink.send(struct.pack("=IHHIIBBH", 20, FORGET_ALL, REQUEST | ACKNOWLEDGE, 1, 0, 0, 0, 0))
            (status,) = struct.unpack_from("=i", netlink.recv(4096), 16)
            if status != 0:
                raise OSError(-status, "the router could not forget its connections")
        for host in self.hosts.values():
            self.router.run("ip", "link", "set", host.link, "up")

    # -- slow links

    def link(self, name, round_trip_ms=0, mbit=None):
        """Makes the link of a host slow: what it sends and what it gets each takes half of the round trip, and not more
        than `mbit` a second pass in each direction. Without arguments it is fast again. A packet that passes two slow
        links is delayed by one of them only."""
        host = self[name]
        ends = ((self.router, host.link), (host, "eth0"))
        for where, device in ends:
            with contextlib.suppress(OSError):  # it has none
                where.run("tc", "qdisc", "delete", "dev", device, "root")
        self.delay(host, 0 if NETEM else round_trip_ms)
        for where, device in ends:
            if NETEM and (round_trip_ms or mbit):
                limit = ["rate", f"{mbit}mbit"] if mbit else []
                where.run("tc", "qdisc", "add", "dev", device, "root", "netem", "delay", f"{round_trip_ms / 2}ms", *limit)
            elif mbit:
                where.run("tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", f"{mbit}mbit", "burst", "5kb",
                          "latency", "400ms")

    def delay(self, host, round_trip_ms):
        """Without netem: sends all packets of the host through a device whose other end is a program that holds them."""
        if host.name in self.hops:
            self.hops[host.name].kill()
            self.hops.pop(host.name).wait()
            self.delay_rules(host, "-D", "delete")
        if not round_trip_ms:
            return
        with self.router.entered():
            tunnel = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
            fcntl.ioctl(tunnel, TUNSETIFF, struct.pack("16sH22x", self.hop_of(host).encode(), IFF_TUN | IFF_NO_PI))
        self.router.run("ip", "link", "set", self.hop_of(host), "up")
        self.delay_rules(host, "-A", "add")
        self.hops[host.name] = subprocess.Popen([sys.executable, DELAY_HOP, str(tunnel), str(round_trip_ms / 2000)],
                                                stdin=subprocess.PIPE, pass_fds=[tunnel])
        os.close(tunnel)

    def delay_rules(self, host, change, word):
        hop, number = self.hop_of(host), host.number
        mark = ["-j", "MARK", "--set-mark", number]
        for which in (["-i", host.link], ["-d", host.address, "!", "-i", hop]):
            self.router.run("iptables", "-t", "mangle", change, "PREROUTING", *which, *mark)
        # The connections of packets that come back were seen before.
        self.router.run("iptables", "-t", "raw", change, "PREROUTING", "-i", hop, "-j", "CT", "--notrack")
        self.router.run("ip", "rule", word, "fwmark", number, "table", 100 + number)
        if word == "add":  # it goes with the device
            self.router.run("ip", "route", "add", "default", "dev", hop, "table", 100 + number)

    @staticmethod
    def hop_of(host):
        return f"hop{host.number}"


def has_netem():
    with contextlib.suppress(OSError), contextlib.closing(Namespace()) as alone:
        alone.run(*"tc qdisc add dev lo root netem delay 1ms".split())
        return True
    return False


def find_missing():
    """Returns why there can be no hosts here, or None."""
    lacking = [name for name in ("ip", "tc", "iptables") if not shutil.which(name)]
    if lacking:
        return f"no {', '.join(lacking)}: Debian's packages iproute2 and iptables"
    try:
        Network("one").close()
    except OSError as error:
        return f"network namespaces are not possible here: {error.strerror}; they need root, or `unshare -rn`"
    return None


MISSING = find_missing()
NETEM = MISSING is None and has_netem()
DELAYS = "netem" if NETEM else "a program in the router"  # what delays packets here

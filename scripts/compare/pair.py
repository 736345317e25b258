"""The servers of the engines compared, of which one works at a time."""

import subprocess

from row import OURS
from server import Failed, Server


class Pair:
    """A server for each engine, with the same cache. What a peer cannot do is told and left out."""

    def __init__(self, base, plan, cache, seen, log="2G", alone=False, extra=()):
        """`alone`: a server runs only while it works, for where memory has no room for all. `extra`:
        options of all servers."""
        self.seen, self.alone = seen, alone
        self.servers = {e: Server(base, e, cache, plan.folders.get(e), log, extra)
                        for e in plan.engines}
        try:
            for server in self.servers.values() if not alone else ():
                server.start()
        except BaseException:
            self.stop()
            raise

    def each(self, what, work):
        """What `work(server)` gives, by engine; the others are paused meanwhile. A peer that fails
        has no entry; ours ends the run."""
        done = {}
        for engine, server in self.servers.items():
            others = [s for s in self.servers.values() if s is not server and not self.alone]
            for other in others:
                other.pause()
            try:
                if self.alone:
                    server.start()
                done[engine] = work(server)
            except (Failed, subprocess.CalledProcessError) as error:
                if engine == OURS:
                    raise
                self.seen(f"{what}: {engine} cannot do it: {error}")
            finally:
                server.end_clients()
                if self.alone:
                    server.stop()
                for other in others:
                    other.go_on()
        return done

    def prepare(self, what, work):
        """Does it on every server; those that cannot take no further part."""
        able = self.each(f"{what} prepare", lambda server: work(server) or True)
        for engine in self.servers.keys() - able.keys():
            self.servers.pop(engine).stop()

    def stop(self):
        for server in self.servers.values():
            server.stop()
